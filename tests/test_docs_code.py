"""Code of the documentation, run as it stands there, page by page and from top to bottom.

What a page prints has to be what it shows, as `python -m recipes.pages PAGE --write` puts it there.
Pages about servers, files, tasks and ready-made schemas have tests of their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import slow_but

from recipes.pages import NOT_RUN, ROOT, WHOLE, outputs

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
