"""The Hub without a network: what is not there is said soon, what is in the cache is loaded."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import sys, time, warnings
warnings.simplefilter("always")
import torch
import huggingface_hub, transformers
from schemax import Extractor
from schemax.errors import SchemaxError
torch.set_num_threads(1)
Extractor.from_pretrained(sys.argv[1], device="cpu")  # all is imported
with warnings.catch_warnings(record=True) as said:
    started = time.monotonic()
    try:
        Extractor.from_pretrained(*sys.argv[2:], device="cpu")
        problem = None
    except SchemaxError as error:
        problem = str(error)
    seconds = time.monotonic() - started
import json
said = [str(one.message) for one in said if one.category is UserWarning]
print(json.dumps({"seconds": seconds, "problem": problem, "said": said}))
"""


@pytest.fixture(params=["silent", "closed"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """A Hub that takes connections and never answers, or one that takes none."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "silent":
            listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def load(name: str, folder: Path, tmp_path: Path, endpoint: str) -> dict[str, Any]:
    environment = {
        key: value for key, value in os.environ.items() if "proxy" not in key.lower()
    } | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_ENDPOINT": endpoint}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_what_is_neither_here_nor_there_is_said_soon(
    folder: Path, tmp_path: Path, endpoint: str
) -> None:
    found = load("someone/nothing", folder, tmp_path, endpoint)
    assert found["problem"].startswith("someone/nothing is neither a folder nor in the Hub's cache")
    assert f"{endpoint} cannot be asked: " in found["problem"]
    assert "\n" not in found["problem"]
    assert found["seconds"] < 5
    if found["seconds"] > 1.5:
        assert found["said"] == [f"waiting for {endpoint}, to look for someone/nothing"]


def test_what_is_in_the_cache_is_loaded_without_the_hub(
    folder: Path, tmp_path: Path, endpoint: str
) -> None:
    root = tmp_path / "hub" / "models--someone--model"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("a" * 40)
    shutil.copytree(folder, root / "snapshots" / ("a" * 40))
    found = load("someone/model", folder, tmp_path, endpoint)
    assert (found["problem"], found["said"]) == (None, [])
    assert found["seconds"] < 5


def test_names_that_the_hub_cannot_have_are_refused_without_asking(
    folder: Path, tmp_path: Path, endpoint: str
) -> None:
    found = load("./no/such/folder", folder, tmp_path, endpoint)
    assert found["problem"].startswith("./no/such/folder is neither a folder nor a name on the Hub")
    assert found["seconds"] < 1
