"""The Hub without a network: what is not there is said soon, what is in the cache is loaded."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import slow_but

# The Hub's client would try again and again, for two minutes and more.
SOON = 60

SCRIPT = """
import json, sys, time
import torch
import huggingface_hub, transformers
from schemax import Extractor
from schemax.errors import SchemaxError
torch.set_num_threads(1)
Extractor.from_pretrained(sys.argv[1], device="cpu")  # all is imported
found = {}
for name in sys.argv[2:]:
    problem = None
    started = time.monotonic()
    try:
        Extractor.from_pretrained(name, device="cpu")
    except SchemaxError as error:
        problem = str(error)
    found[name] = {"seconds": time.monotonic() - started, "problem": problem}
print(json.dumps(found))
"""

NOTHING, CACHED, NO_NAME = "someone/nothing", "someone/model", "./no/such/folder"


@pytest.fixture(scope="module", params=slow_but({"closed"}, ["silent", "closed"]))
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """A Hub that takes connections and never answers, or one that takes none."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "silent":
            listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def loaded(
    endpoint: str, saved_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """How loading went, by name."""
    cache = tmp_path_factory.mktemp("hub")
    root = cache / f"models--{CACHED.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("a" * 40)
    shutil.copytree(saved_model, root / "snapshots" / ("a" * 40))
    environment = {
        key: value for key, value in os.environ.items() if "proxy" not in key.lower()
    } | {"HF_HUB_CACHE": str(cache), "HF_ENDPOINT": endpoint}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(saved_model), NOTHING, CACHED, NO_NAME],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.release
def test_what_is_neither_here_nor_there_is_said_soon(
    endpoint: str, loaded: Mapping[str, Any]
) -> None:
    found = loaded[NOTHING]
    assert found["problem"].startswith(f"{NOTHING} is neither a folder nor in the Hub's cache")
    assert f"{endpoint} cannot be asked: " in found["problem"]
    assert "\n" not in found["problem"]
    assert found["seconds"] < SOON


@pytest.mark.slow
def test_what_is_in_the_cache_is_loaded_without_the_hub(loaded: Mapping[str, Any]) -> None:
    found = loaded[CACHED]
    assert found["problem"] is None
    assert found["seconds"] < SOON


@pytest.mark.slow
def test_names_that_the_hub_cannot_have_are_refused_without_asking(
    loaded: Mapping[str, Any],
) -> None:
    found = loaded[NO_NAME]
    assert found["problem"].startswith(f"{NO_NAME} is neither a folder nor a name on the Hub")
