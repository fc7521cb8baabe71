"""docs/coming-from.md: the code that it shows for schemax, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from completions_server import CompletionsServer, served
from conftest import slow_but

from schemax import Extractor
from schemax.base.resources import resource_dir
from schemax.compiler import as_codec

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coming-from.md").read_text("utf-8")
FOLDER = str(resource_dir("embedded"))
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
BEFORE, *SECTIONS = PAGE.split("\n## ")
TITLES = [section.partition("\n")[0] for section in SECTIONS]


@pytest.fixture(scope="module")
def model() -> Any:
    return Extractor.from_pretrained(FOLDER, device="cpu").model.model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:examples are not shown")  # by the embedded model's template
@pytest.mark.parametrize("title", slow_but(TITLES[:2], TITLES))
def test_the_code_for_schemax(title: str, model: Any) -> None:
    """Servers and models stand elsewhere here; nothing else is changed."""
    (declared,) = _BLOCK.findall(BEFORE)
    (shown,) = _BLOCK.findall(SECTIONS[TITLES.index(title)].partition("With schemax")[2])
    with (
        served(model, as_codec(FOLDER)) as server,
        served(model, as_codec(FOLDER), "chat") as chat,
    ):
        places = {
            "http://localhost:8000/v1": server.url,
            "https://api.openai.com/v1": chat.url,
            "Qwen/Qwen3-4B": FOLDER,
        }
        for named, here in places.items():
            shown = shown.replace(named, here)
        names: dict[str, Any] = {}
        for code in (declared, shown):
            exec(compile(code, "coming-from.md", "exec", dont_inherit=True), names)
        extractor = names["extractor"]
        assert _was_asked(chat) == (title == "instructor")
        assert _was_asked(server) == ("vLLM" in title)
        # The embedded model, which stands behind the servers here, copies demonstrations.
        asked = {"on_error": "null", "examples": ()}
        (samsung, _) = extractor.extract(names["texts"], names["Television"], **asked)
        assert samsung.brand == "Samsung"


def _was_asked(server: CompletionsServer) -> bool:
    return bool(server.asked)


def test_the_toolkits_that_are_told_of() -> None:
    assert TITLES == ["instructor", "outlines", "vLLM's structured outputs", "langextract"]
