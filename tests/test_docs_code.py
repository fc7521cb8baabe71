"""Code of the documentation, run as it stands there, page by page and from top to bottom.

Models of the Hub and CUDA devices become the embedded model on a CPU; nothing else is changed. What
a page prints has to be what it shows. Pages about servers, files, tasks,
discovery and ready-made schemas have tests of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import pytest
from conftest import slow_but
from typer.testing import CliRunner

from schemax import AttrSchema, Extractor, attr, extract
from schemax.cli import app
from schemax.resources import resource_dir

ROOT = Path(__file__).resolve().parents[1]
FOLDER = str(resource_dir("embedded"))
ELSEWHERE = {"coming-from.md", "serve.md", "servers.md", "discover.md", "schemas.md", "files.md"}
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if path.name not in ELSEWHERE
    and path.parent.name not in ("integrations", "tasks")
    and "```python\n" in path.read_text("utf-8")
)
LEARN = {f"docs/{name}.md" for name in ("tutorial", "declaring", "errors")}
# What cannot be run here, by words of the code, and why.
NOT_RUN = {
    "distributed_config=": "several processes with a GPU each",
    "device_map=": "several GPUs",
    "Q4_1.gguf": "a GGUF file",
    'quantization="nf4"': "a GPU, and bitsandbytes",
    'adapter="models/my-lora"': "an adapter",
    "BashOperator": "Airflow",
    "ray.data": "a cluster",
    "multiprocessing": "processes, which would load a model each",
    'read_table("televisions/")': "shards of several machines",
    'read_table("shards/")': "shards of several machines",
    "my_judge": "a judge",
    'Path("train.jsonl")': "a user's files",
    'prompt="prompt.json"': "what fit has written",
    "def spelling(self)": "part of a class",
}
HERE = {
    "Qwen/Qwen3-4B": FOLDER,
    "Qwen/Qwen3-8B": FOLDER,
    "models/my-model": FOLDER,
    "path/to/model": FOLDER,
    'device="cuda"': 'device="cpu"',
    'device="cuda:1"': 'device="cpu"',
    'dtype="bfloat16"': 'dtype="float32"',
}
_BLOCK = re.compile(r"^```(python|bash|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


class Television(AttrSchema):
    """A television set."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal of the screen, inches", k_max=8)
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = attr("Resolution class")
    ports: list[str] = attr("Connectors", default_factory=list)


class Shoe(AttrSchema):
    """A pair of shoes."""

    brand: str | None = None
    color: str | None = None


PRODUCTS = [
    {"id": "1", "title": "Samsung 55-Inch 4K Smart TV", "description": "3 HDMI ports"},
    {"id": "2", "title": "LG OLED C3", "description": ""},
]


def names_of(page: str) -> dict[str, Any]:
    """What pages take for granted."""
    if page in LEARN:
        return {}
    import pandas

    extractor = Extractor.default()
    Path("catalogue.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PRODUCTS))
    return {
        **{"AttrSchema": AttrSchema, "Extractor": Extractor, "attr": attr, "extract": extract},
        **{"Television": Television, "Shoe": Shoe, "Line": Shoe, "Literal": Literal},
        "extractor": extractor,
        **{"products": PRODUCTS, "name": FOLDER, "pandas": pandas},
        "frame": pandas.DataFrame(PRODUCTS),
        "item": next(extractor.stream(PRODUCTS[:1], Television)),
    }


@pytest.mark.parametrize("page", slow_but(LEARN - {"docs/tutorial.md"}, PAGES))
def test_the_code_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {**names_of(page), "__name__": "__main__"}
    printed, ran = "", 0
    for kind, code in _BLOCK.findall((ROOT / page).read_text("utf-8")):
        if kind == "text" and page in LEARN:
            assert printed == code
        elif kind == "bash" and page == "docs/tutorial.md":
            for line in code.splitlines():
                run_command(here(line))
        elif kind == "python" and not any(word in code for word in NOT_RUN):
            out = StringIO()
            with redirect_stdout(out):
                exec(compile(here(code), page, "exec", dont_inherit=True), names)
            printed, ran = out.getvalue(), ran + 1
    assert ran or any(word in (ROOT / page).read_text("utf-8") for word in NOT_RUN)


def here(code: str) -> str:
    for named, instead in HERE.items():
        code = code.replace(named, instead)
    return code


def run_command(line: str) -> None:
    command, *arguments = shlex.split(line)
    if command == "pip":
        return
    assert command == "schemax"
    result = CliRunner().invoke(app, arguments, env={**os.environ, "SCHEMAX_MODEL": FOLDER})
    assert result.exit_code == 0, result.output


def test_what_is_not_run_is_there() -> None:
    pages = "".join((ROOT / page).read_text("utf-8") for page in PAGES)
    assert [word for word in NOT_RUN if word not in pages] == []
