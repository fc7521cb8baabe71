"""The site's pages that lie elsewhere in the repository, and docstrings as Markdown."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]

# Files of the repository that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "recipes/embedded/README.md": "recipe.md",
    "recipes/small/README.md": "recipe-small.md",
    "schemax/weights/embedded/README.md": "embedded-model.md",
    "schemax/weights/small/README.md": "small-model.md",
}
_SOURCES = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def on_files(files: Any, config: Any) -> Any:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between files of the repository become links between pages."""
    source = _SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    here = posixpath.dirname(source)

    def linked(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups(default="")
        if "://" in target:
            return match[0]
        target = posixpath.normpath(posixpath.join(here, target))
        target = PAGES.get(target, target.removeprefix("docs/"))
        target = posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")
        return f"{before}{target}{anchor}{after}"

    return _LINK.sub(linked, markdown)


class ParametersAsLists(griffe.Extension):
    """Lines such as `k_max: token budget` of a docstring, which Markdown would run together."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = obj.docstring.value
            named = re.sub(r"^(\w+(?:, \w+)*): ", r"\n- `\1`: ", text, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"^(    )(\S)", r"  \2", named, flags=re.MULTILINE)
