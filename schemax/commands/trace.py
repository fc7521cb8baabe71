"""`schemax trace`: shows the tokens that every pass wrote for one document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from schemax.attributes import settings_of
from schemax.base.messages import counted, say
from schemax.base.options import option
from schemax.base.terminal import in_blocks, show, table
from schemax.commands import options
from schemax.commands.options import UsageError, argument, plain_warnings, refused_settings, verb
from schemax.evaluation.shots import few_shot
from schemax.extraction.declarations import in_language, read_schema
from schemax.io.readers import first_document

_CELL = 24  # characters


class Args(options.Loading, options.Prompt, options.Language, options.Schema):
    """Options"""

    text: str = argument("TEXT")
    """The document; "-" reads stdin. A file that `extract` reads gives its first document, a text
    file (.txt, .md, .html) its whole text."""
    output: Path | None = option("-o FILE.html")
    """A page that plays it back."""
    as_json: bool = option("--json", default=False)
    """Print the trace as JSON, with token ids and likeliest tokens."""


@verb
def trace(args: Args) -> None:
    """Shows what every pass wrote for one document, with probabilities.

    A row per field, a column per pass; "?" marks tokens of a probability below one half.
    """
    output = args.output
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o writes a page: {output} must end with .html")
    declared = in_language(read_schema(args.schema), args.language)
    settings = args.settings() | {
        "examples": few_shot(args.examples, declared, ignore_extra=args.ignore_extra)
    }
    document = first_document(args.text)
    with plain_warnings():
        extractor = args.extractor(args.prompt)
        from schemax.evaluation.diagnosis.tracing import trace as traced  # imports torch

        with refused_settings():
            record = traced(extractor, document, declared, **settings)
    if args.as_json:
        print(json.dumps(record.to_dict(), ensure_ascii=False, indent=2))
    elif output is None:
        _show(record)
    if output is not None:
        from schemax.evaluation.diagnosis.tracing import playback
        from schemax.report.pages import write_page

        write_page(output, playback(record, settings_of(declared).category))
        say(f"wrote {output}")
    passes = counted(len(record.passes), "pass", "passes")
    say(
        f"{counted(record.prompt_tokens, 'token')} read, {passes}; one token at a time takes "
        f"{record.one_by_one}"
    )


def _show(record: Any) -> None:
    """Shows a trace as a table, or as several tables below each other if it is too wide."""
    rows = dict.fromkeys((token.field, token.row) for tokens in record.passes for token in tokens)
    fields = dict.fromkeys(field for field, _ in rows)
    names = [row for name in fields for field, row in rows if field == name]
    columns: dict[str, Any] = {}
    for number, tokens in enumerate(record.passes, 1):
        cells = {token.row: _cell(token.text, token.probability) for token in tokens}
        columns[f"pass {number}"] = lambda name, cells=cells: cells.get(name, "")
    results = record.extraction.fields
    values = {
        name: "" if result.value is None else str(result.value) for name, result in results.items()
    }
    columns["value"] = lambda name: values.get(name, "")
    notes = [f"{name}: {result.note}" for name, result in results.items() if result.note]
    notes += [f"{error.field or 'error'}: {error.message}" for error in record.extraction.errors]
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
    shown = shown if len(shown) <= _CELL else shown[: _CELL - 3] + "..."
    return shown + (" ?" if probability < 0.5 else "")
