"""Runs the code and the commands of a page, and shows whether they still write what the page shows.

    python -m recipes.pages docs/typed.md [--write] [--beside PLACE ...]

runs the page's blocks from top to bottom in an empty folder, to which each PLACE, a file or folder,
is copied. A
block of ```text shows what the block of ```python or ```bash above has written; a line `...` stands
for lines that are left out. Without --write, the exit status is 1 if page and run differ; with
--write, the page gets what was written.

Above an output that another machine or another moment changes stands `<!-- not compared: WHY -->`.
Models of the Hub and CUDA devices become the embedded model on a CPU; nothing else is changed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from typer.testing import CliRunner

from schemax import AttrSchema, Extractor, attr, extract
from schemax.base.resources import resource_dir
from schemax.commands.cli import app

ROOT = Path(__file__).resolve().parents[1]
FOLDER = str(resource_dir("embedded"))
# Pages that declare all names that they use, and whose commands all run.
WHOLE = {f"docs/{name}.md" for name in ("tutorial", "declaring", "errors")}
# Words of code that cannot run here, and the reason.
NOT_RUN = {
    "distributed_config=": "several processes with a GPU each",
    "device_map=": "several GPUs",
    "Q4_1.gguf": "a GGUF file",
    'model="small"': "a base model from the Hub",
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
_BLOCK = re.compile(
    r"(?P<apart>^<!-- not compared: .*? -->\n)?^```(?P<kind>python|bash|text)\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
# Lines of `schemax.base.messages`: number and speed.
_PROGRESS = re.compile(r"^[\d,]+( of [\d,]+)? \w+, [\d,.]+/s.*\n", re.MULTILINE)


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


@dataclass(frozen=True, slots=True)
class Output:
    """A block of output: its place in the page, its shown text, and the output of the run."""

    start: int
    end: int
    shown: str
    written: str
    is_compared: bool

    @property
    def is_current(self) -> bool:
        return not self.is_compared or _as_pattern(self.shown).fullmatch(self.written) is not None


def outputs(page: str) -> Iterator[Output]:
    """Runs a page in the current folder; `page` is its path below the checkout.

    Commands run if their output is shown, and all of them in a page that is WHOLE.
    """
    text = (ROOT / page).read_text("utf-8")
    names = {**_taken_for_granted(page), "__name__": "__main__"}
    blocks = list(_BLOCK.finditer(text))
    written = None
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        kind, code = block["kind"], block["code"]
        if kind == "text":
            if written is not None:
                yield Output(*block.span("code"), code, written, not block["apart"])
            written = None
        elif kind == "bash":
            is_shown = after is not None and after["kind"] == "text"
            written = _written_by_commands(code) if is_shown or page in WHOLE else None
        else:
            is_run = not any(word in code for word in NOT_RUN)
            written = _written_by_code(code, page, names) if is_run else None


def rewritten(page: str, found: list[Output]) -> str:
    """Returns the page's text with new output in the place of outdated output."""
    text = (ROOT / page).read_text("utf-8")
    for output in reversed(found):
        if not output.is_current or not output.is_compared:
            text = text[: output.start] + output.written + text[output.end :]
    return text


def _as_pattern(shown: str) -> re.Pattern[str]:
    """Returns the shown text as a pattern, in which `...` matches any lines."""
    lines = shown.splitlines(keepends=True)
    return re.compile(
        "".join("(?:.*\n)*" if line == "...\n" else re.escape(line) for line in lines)
    )


def _taken_for_granted(page: str) -> dict[str, Any]:
    if page in WHOLE:
        return {}
    pandas = import_module("pandas")

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


def _written_by_code(code: str, page: str, names: dict[str, Any]) -> str:
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(_here(code), page, "exec", dont_inherit=True), names)
    return out.getvalue()


def _written_by_commands(code: str) -> str:
    """Returns the commands' output on stdout and stderr, without progress."""
    lines = _here(code).replace("\\\n", " ").splitlines()
    written = "".join(_written_by_command(line) for line in lines)
    return re.sub(r"[ ]+$", "", _PROGRESS.sub("", written), flags=re.MULTILINE)


def _written_by_command(line: str) -> str:
    command, *arguments = shlex.split(line, comments=True)
    if command == "pip":
        return ""
    if command != "schemax":
        return subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout
    logger = logging.getLogger("schemax")
    # Unhandled records go to stderr, also under a test runner, which handles all.
    logger.addHandler(logging.lastResort or logging.NullHandler())
    try:
        result = CliRunner().invoke(app, arguments, env={**os.environ, "SCHEMAX_MODEL": FOLDER})
    finally:
        logger.removeHandler(logger.handlers[-1])
    if result.exit_code != 0:
        raise RuntimeError(f"{line}: exit status {result.exit_code}\n{result.output}")
    return result.output


def _here(code: str) -> str:
    for named, instead in HERE.items():
        code = code.replace(named, instead)
    return code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", help="such as docs/typed.md, below the checkout")
    parser.add_argument("--write", action="store_true", help="put into the page what was written")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="PLACE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    beside = [place.resolve() for place in options.beside]
    with TemporaryDirectory() as folder, chdir(folder):
        for one in beside:
            (shutil.copytree if one.is_dir() else shutil.copy)(one, one.name)
        found = list(outputs(options.page))
    stale = [output for output in found if not output.is_current]
    for output in stale:
        pair = output.shown.splitlines(), output.written.splitlines()
        print(*difflib.unified_diff(*pair, "page", "run", lineterm=""), sep="\n")
    if options.write:
        (ROOT / options.page).write_text(rewritten(options.page, found), "utf-8")
    elif stale:
        sys.exit(f"{options.page}: {len(stale)} of {len(found)} outputs are not current; --write")


if __name__ == "__main__":
    main()
