"""Code of the documentation, run as it stands there, page by page and from top to bottom.

What a page prints has to be what it shows, as `python -m recipes.pages PAGE --write` puts it there.
Pages about servers, files, tasks and ready-made schemas have tests of their own.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import slow_but

from recipes.pages import NOT_RUN, ROOT, WHOLE, outputs
from schemax.cli import app

ELSEWHERE = {"coming-from.md", "serve.md", "servers.md", "schemas.md", "files.md"}
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if path.name not in ELSEWHERE
    and path.parent.name not in ("integrations", "tasks")
    and "```python\n" in path.read_text("utf-8")
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.mark.parametrize("page", slow_but(WHOLE - {"docs/tutorial.md"}, PAGES))
def test_the_code_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(outputs(page))
    shown = [output.shown for output in found if output.is_compared]
    assert shown == [output.written for output in found if output.is_compared]


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
