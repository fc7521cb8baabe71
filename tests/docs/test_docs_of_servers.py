"""docs/serve.md and docs/servers.md: the code that they show, run as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from completions_server import served as completions
from pydantic import BaseModel
from serving import served

from schemax import AttrSchema, Extractor
from schemax.base.resources import resource_dir
from schemax.compiler import as_codec

pytest.importorskip("httpx")

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = str(resource_dir("embedded"))
TEXTS = ["Sony 55-Inch BRAVIA 4K UHD Smart TV", "LG OLED55C3, 55 inch"]
_BLOCK = re.compile(r"```(python|bash)\n(.*?)```", re.DOTALL)


class Television(AttrSchema):
    """A television."""

    brand: str | None = None
    screen_size: float | None = None


def blocks(page: str) -> list[tuple[str, str]]:
    return _BLOCK.findall((DOCS / page).read_text("utf-8"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(Extractor.from_pretrained(FOLDER, device="cpu"), api_key="key") as address:
        yield address


def shell(code: str, **more: str) -> str:
    command = f'set -euo pipefail\nschemax() {{ {sys.executable} -m schemax "$@"; }}\n{code}'
    environment = os.environ | more
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pages_show_what_is_run_here() -> None:
    kinds = [kind for kind, _ in blocks("serve.md")]
    assert kinds == ["bash", "python", "python", "bash", "bash", "python", "python"]
    # The last two need llama.cpp and a pretrained model.
    assert [kind for kind, _ in blocks("servers.md")] == ["python", "bash", "bash", "bash"]


@pytest.mark.slow
def test_serving_in_python(url: str) -> None:
    """All but OpenAI's client, which has its own test."""
    codes = [code for kind, code in blocks("serve.md") if kind == "python"]
    names: dict[str, Any] = {"texts": TEXTS, "Television": Television}
    for code in codes[2:]:
        code = code.replace("http://127.0.0.1:8000", url).replace("Qwen/Qwen3-4B", FOLDER)
        exec(compile(code, "serve.md", "exec", dont_inherit=True), names)
    assert names["row"]["attributes"].keys() == {"brand", *names["row"]["attributes"]}
    assert [found[0].brand for found in names["found"]] == ["Sony", "LG"]


def test_openais_client(url: str) -> None:
    pytest.importorskip("openai")
    _, before, after, *_ = [code for _, code in blocks("serve.md")]
    names: dict[str, Any] = {"text": TEXTS[0]}
    after = after.replace("http://127.0.0.1:8000", url)
    exec(compile(before + after, "serve.md", "exec", dont_inherit=True), names)
    parsed = names["done"].choices[0].message.parsed
    assert isinstance(parsed, BaseModel)
    assert parsed.brand == "Sony"  # type: ignore[attr-defined]
    names["client"].close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl(url: str) -> None:
    codes = [code for kind, code in blocks("serve.md") if kind == "bash"]
    whole, lines = [code for code in codes if "curl " in code]
    header = f'curl -sS -H "Authorization: Bearer key" {url}'
    found = json.loads(shell(whole.replace("curl http://127.0.0.1:8000", header)))
    streamed = shell(lines.replace("curl http://127.0.0.1:8000", header))
    rows = sorted(map(json.loads, streamed.splitlines()), key=lambda row: row["index"])
    assert [row["id"] for row in rows] == [row["id"] for row in found["rows"]] == [None, "7"]
    assert [row["attributes"] for row in rows] == [row["attributes"] for row in found["rows"]]


@pytest.mark.slow
def test_the_commands_of_serving(url: str) -> None:
    """They install and serve for good, so that only their options are looked at."""
    code = next(code for kind, code in blocks("serve.md") if kind == "bash")
    asked = [line.partition("#")[0].strip() for line in code.splitlines()]
    options = shell("schemax serve --help", COLUMNS="200")
    for option in re.findall(r"--[a-z-]+", " ".join(asked)):
        assert option in options


@pytest.mark.release
def test_servers(tmp_path: Path) -> None:
    model = Extractor.from_pretrained(FOLDER, device="cpu").model.model
    (_, code), (_, command), *_ = blocks("servers.md")
    names: dict[str, Any] = {"products": TEXTS, "Television": Television}
    products = tmp_path / "products.jsonl"
    products.write_text("\n".join(json.dumps({"title": text}) for text in TEXTS), "utf-8")
    with completions(model, as_codec(FOLDER)) as server:
        places = {
            "http://localhost:8000/v1": server.url,
            "--model Qwen/Qwen3-4B": f"--tokenizer {FOLDER}",
            "Qwen/Qwen3-4B": FOLDER,
            "products.parquet": str(products),
            "televisions.parquet": str(tmp_path / "televisions.jsonl"),
        }
        for named, here in places.items():
            code, command = code.replace(named, here), command.replace(named, here)
        exec(compile(code, "servers.md", "exec", dont_inherit=True), names)
        shell(command)
    assert [found.brand for found in names["televisions"]] == ["Sony", "LG"]
    written = (tmp_path / "televisions.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in written.splitlines()]
    assert [row["attributes"]["brand"] for row in rows] == ["Sony", "LG"]
