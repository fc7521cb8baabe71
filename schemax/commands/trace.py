"""`schemax trace`: what every pass wrote for one document."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from schemax.attributes import settings_of
from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, refused_settings, say, show, table
from schemax.commands.declarations import read_schema
from schemax.commands.few_shot import few_shot
from schemax.commands.option_groups import argument, grouped, option
from schemax.commands.options import LoadingOptions
from schemax.errors import InputError
from schemax.io.excel import EXCEL
from schemax.io.readers import ARROW, CSV, PARQUET, read_file
from schemax.io.storage import suffixes
from schemax.messages import counted

_TOKENS = 24  # characters of a cell
_TABLES = (".jsonl", ".ndjson", ".json", *CSV, *PARQUET, *ARROW, *EXCEL)
_TEXTS = (".txt", ".md", ".html", ".htm")


@grouped
def trace(
    schema: options.Schema,
    text: str = argument(
        'The document; "-" reads stdin. Of a file that `extract` reads, the first; of a text file '
        "(.txt, .md, .html), all.",
        "TEXT",
    ),
    model: options.Model = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    *,
    loading: LoadingOptions,
    format: options.Format = None,
    template: options.Template = None,
    examples: options.Examples = None,
    decoding: options.Decoding = None,
    prompt: options.Prompt = None,
    output: Path | None = option(
        "A page that plays it back.", *("--output", "-o"), metavar="FILE.html"
    ),
    as_json: bool = option(
        "As JSON, with token ids and likeliest tokens.", "--json", default=False
    ),
) -> None:
    """Shows what every pass wrote for one document, with probabilities.

    A row per field, a column per pass; "?" marks tokens of a probability below one half.
    """
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o writes a page: {output} must end with .html")
    declared = read_schema(schema)
    settings = options.checked_settings(format, template, decoding)
    settings["examples"] = few_shot(examples, declared)
    document = _document(text)
    with plain_warnings():
        extractor = options.load_extractor(model, device, dtype, prompt=prompt, **loading.named())
        from schemax.diagnosis.tracing import trace as traced  # which imports torch

        with refused_settings():
            found = traced(extractor, document, declared, **settings)
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2))
    elif output is None:
        rows = list(
            dict.fromkeys((one.field, one.row) for written in found.passes for one in written)
        )
        fields = list(dict.fromkeys(field for field, _ in rows))
        names = [row for name in fields for field, row in rows if field == name]
        columns: dict[str, Any] = {"field": lambda name: name}
        for number, written in enumerate(found.passes):
            cells = {one.row: _cell(one.text, one.probability) for one in written}
            columns[f"pass {number + 1}"] = lambda name, cells=cells: cells.get(name, "")
        results = found.extraction.fields
        columns["value"] = lambda name: _value(results[name].value) if name in results else ""
        notes = [f"{name}: {result.note}" for name, result in results.items() if result.note]
        notes += [f"{one.field or 'error'}: {one.message}" for one in found.extraction.errors]
        show(table(names, columns, left=len(columns)), *notes)
    if output is not None:
        from schemax.diagnosis.playback import playback
        from schemax.pages import write_page

        write_page(output, playback(found, settings_of(declared).category))
        say(f"wrote {output}")
    passes = counted(len(found.passes), "pass", "passes")
    say(
        f"{counted(found.prompt_tokens, 'token')} read, {passes}; one token at a time takes "
        f"{found.one_by_one}"
    )


def _document(text: str) -> str | Mapping[str, Any]:
    """The text itself, or the first document of the file that it names."""
    if text == "-":
        return sys.stdin.read()
    suffix = suffixes(text)[0]
    is_file = os.path.isfile(text)
    if suffix not in (*_TEXTS, *_TABLES) or not (is_file or text.split() == [text]):
        return text
    if not is_file:
        raise UsageError(f"no such file: {text}; give the text of a document")
    say(f"note: the first document of {text}")
    if suffix not in _TABLES:
        return Path(text).read_text("utf-8-sig")
    with closing(read_file(text)) as records:
        record = next(records, None)
    if isinstance(record, InputError):
        raise record
    if record is None:
        raise UsageError(f"{text} holds no document")
    return record


def _cell(text: str, probability: float) -> str:
    shown = text.replace("\n", "\\n")
    shown = shown if len(shown) <= _TOKENS else shown[: _TOKENS - 3] + "..."
    return shown + (" ?" if probability < 0.5 else "")


def _value(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)
