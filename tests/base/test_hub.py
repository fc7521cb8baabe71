"""The Hub: only what is read is fetched. Without a network, its cache is used."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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

SHA = "a" * 40
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
    (root / "refs" / "main").write_text(SHA)
    shutil.copytree(saved_model, root / "snapshots" / SHA)
    return run(SCRIPT, endpoint, cache, str(saved_model), NOTHING, CACHED, NO_NAME)


def run(script: str, endpoint: str, cache: Path, *names: str) -> Any:
    """The last line that a script prints, as JSON; with this Hub and this cache of it."""
    environment = {
        key: value for key, value in os.environ.items() if "proxy" not in key.lower()
    } | {"HF_HUB_CACHE": str(cache), "HF_ENDPOINT": endpoint}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-c", script, *names], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


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


# A Hub that answers


FETCHING = """
import json, sys
import torch
from schemax import Extractor
from schemax.evaluation.diagnosis.unloaded import Unloaded
from schemax.io.fingerprint import of_model
torch.set_num_threads(1)
name = sys.argv[1]
unloaded = Unloaded(name)
loaded = Extractor.from_pretrained(name, device="cpu")
again = Extractor.from_pretrained(name, device="cpu", revision="main")
print(json.dumps([str(unloaded.place), of_model(name, loaded.model.model)]))
"""


@pytest.fixture
def hub(saved_model: Path) -> Iterator[tuple[str, list[str]]]:
    """(the address of a Hub whose every repository is one model, the files asked of it)."""
    contents = {file.name: file.read_bytes() for file in saved_model.iterdir()}
    contents |= {"pytorch_model.bin": b"pickle", "checkpoint-5/config.json": b"{}"}
    contents |= {"consolidated.safetensors": b"twice", "prompt.jinja": b"", "modeling.py": b""}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            path = self.path.partition("?")[0]
            body: bytes = b""
            if "/revision/" in path:
                body = json.dumps({"id": CACHED, "sha": SHA}).encode()
            elif "/tree/" in path:
                files = [
                    {"type": "file", "path": name, "size": len(text), "oid": name}
                    for name, text in contents.items()
                ]
                body = json.dumps(files).encode()
            elif "/resolve/" in path:
                name = path.partition(f"/resolve/{SHA}/")[2]
                asked.append(name)
                body = contents[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{zlib.crc32(body)}"')
            self.send_header("X-Repo-Commit", SHA)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_GET = do_HEAD  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_only_what_is_read_is_fetched(
    hub: tuple[str, list[str]], saved_model: Path, tmp_path: Path
) -> None:
    endpoint, asked = hub
    folder, fingerprint = run(FETCHING, endpoint, tmp_path, CACHED)
    own = {file.name for file in saved_model.iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= own
    assert set(asked) == own | {"prompt.jinja"}
    assert asked.count("model.safetensors") <= 2  # its size, then its contents
    assert Path(folder).name == SHA
    assert fingerprint == f"{CACHED}@{SHA}"
