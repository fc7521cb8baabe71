"""`schemax trace`: shows the tokens that every pass wrote for one document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from schemax.attributes import settings_of
from schemax.base.messages import counted, say
from schemax.base.terminal import in_blocks, show, table
from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, refused_settings
from schemax.commands.option_groups import argument, option, verb
from schemax.evaluation.shots import few_shot
from schemax.extraction.declarations import in_language, read_schema
from schemax.io.first import first_document

_TOKENS = 24  # characters of a cell


class Given(options.Loading, options.Prompt, options.Language, options.Schema):
    """Options"""

    text: str = argument("TEXT")
    """The document; "-" reads stdin. Of a file that `extract` reads, the first; of a text file
    (.txt, .md, .html), all."""
    output: Path | None = option("-o FILE.html")
    """A page that plays it back."""
    as_json: bool = option("--json", default=False)
    """Print the trace as JSON, with token ids and likeliest tokens."""


@verb
def trace(given: Given) -> None:
    """Shows what every pass wrote for one document, with probabilities.

    A row per field, a column per pass; "?" marks tokens of a probability below one half.
    """
    output = given.output
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o writes a page: {output} must end with .html")
    declared = in_language(read_schema(given.schema), given.language)
    settings = given.settings() | {"examples": few_shot(given.examples, declared)}
    document = first_document(given.text)
    with plain_warnings():
        extractor = given.extractor(given.prompt)
        from schemax.evaluation.diagnosis.tracing import trace as traced  # imports torch

        with refused_settings():
            found = traced(extractor, document, declared, **settings)
    if given.as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2))
    elif output is None:
        _show(found)
    if output is not None:
        from schemax.evaluation.diagnosis.tracing import playback
        from schemax.report.pages import write_page

        write_page(output, playback(found, settings_of(declared).category))
        say(f"wrote {output}")
    passes = counted(len(found.passes), "pass", "passes")
    say(
        f"{counted(found.prompt_tokens, 'token')} read, {passes}; one token at a time takes "
        f"{found.one_by_one}"
    )


def _show(found: Any) -> None:
    """Shows a trace as a table, or as several below each other where one is too wide."""
    rows = dict.fromkeys((one.field, one.row) for written in found.passes for one in written)
    fields = dict.fromkeys(field for field, _ in rows)
    names = [row for name in fields for field, row in rows if field == name]
    columns: dict[str, Any] = {}
    for number, written in enumerate(found.passes, 1):
        cells = {one.row: _cell(one.text, one.probability) for one in written}
        columns[f"pass {number}"] = lambda name, cells=cells: cells.get(name, "")
    results = found.extraction.fields
    values = {name: "" if one.value is None else str(one.value) for name, one in results.items()}
    columns["value"] = lambda name: values.get(name, "")
    notes = [f"{name}: {result.note}" for name, result in results.items() if result.note]
    notes += [f"{one.field or 'error'}: {one.message}" for one in found.extraction.errors]
    notes += [
        f"{name}: {result.raw.strip()} was written, and left out as improbable"
        for name, result in results.items()
        if result.left_out and result.raw
    ]
    tables: list[Any] = []
    for block in in_blocks(names, columns, beside=max(map(len, (*names, "field")))):
        shown = {"field": lambda name: name, **block}
        tables += [*([""] if tables else []), table(names, shown, left=len(shown))]
    show(*tables, *notes)


def _cell(text: str, probability: float) -> str:
    shown = text.replace("\n", "\\n")
    shown = shown if len(shown) <= _TOKENS else shown[: _TOKENS - 3] + "..."
    return shown + (" ?" if probability < 0.5 else "")
