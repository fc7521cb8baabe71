"""Code of the documentation, run as it stands there, page by page and from top to bottom.

What a page prints has to be what it shows, as `python -m recipes.pages PAGE --write` puts it there.
Pages about servers, files, tasks and ready-made schemas have tests of their own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import slow_but
from published_files import write_oa_mine
from seams import forget_formats

from recipes.pages import NOT_RUN, ROOT, WHOLE, outputs
from reproduce.dataset.write import write_dataset
from schemax.commands.cli import app

ELSEWHERE = {"coming-from.md", "serve.md", "servers.md", "schemas.md", "files.md", "tasks.md"}
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if path.name not in ELSEWHERE
    and path.parent.name not in ("integrations", "tasks")
    and "```python\n" in path.read_text("utf-8")
)

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-\d+)?")

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.mark.parametrize("page", slow_but(WHOLE - {"docs/tutorial.md"}, PAGES))
def test_the_code_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    forget_formats(monkeypatch)
    stale = [output for output in outputs(page) if not output.is_current]
    assert [output.shown for output in stale] == [output.written for output in stale]


def numbers(line: str) -> list[float]:
    return [float(one.replace(",", "")) for one in NUMBER.findall(line)]


@pytest.mark.skipif("SCHEMAX_TUTORIAL" not in os.environ, reason="set SCHEMAX_TUTORIAL=1 to train")
@pytest.mark.slow  # trains for two minutes; figures differ by processor
def test_the_tutorial_of_training(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words as they are shown; figures nearly so, since processors round differently."""
    monkeypatch.chdir(tmp_path)
    write_oa_mine(data, tmp_path)
    write_dataset("oa-mine", str(tmp_path), tmp_path / "oa-mine")
    page = "docs/tutorial-training.md"
    (draw,) = re.findall(r"^shuf .*$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    subprocess.run(["bash", "-c", draw], check=True)
    for output in outputs(page):
        words = replace(output, shown=NUMBER.sub("#", output.shown), is_compared=True)
        assert replace(words, written=NUMBER.sub("#", output.written)).is_current, output.written
        written = iter(output.written.splitlines())
        for line in output.shown.splitlines():
            if line != "...":
                near = pytest.approx(numbers(line), rel=0.2, abs=0.03)
                alike = (one for one in written if NUMBER.sub("#", one) == NUMBER.sub("#", line))
                assert any(numbers(one) == near for one in alike), line


def test_what_is_not_run_is_there() -> None:
    pages = "".join((ROOT / page).read_text("utf-8") for page in PAGES)
    assert [word for word in NOT_RUN if word not in pages] == []


@pytest.mark.parametrize("page", ["README.md", "docs/commands.md"])
def test_commands_have_the_options_that_a_page_names(page: str) -> None:
    verbs: Any = typer.main.get_command(app)
    lines = re.findall(r"^schemax (.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert lines
    for line in lines:
        verb, *arguments = shlex.split(line, comments=True)
        verbs.commands[verb].make_context(verb, arguments)  # raises for what it does not know


def test_the_page_of_commands_names_every_verb() -> None:
    verbs: Any = typer.main.get_command(app)
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    named = set(re.findall(r"^schemax (\w+)", page, re.MULTILINE))
    assert named == set(verbs.commands)
