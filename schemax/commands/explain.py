"""`schemax explain` and `schemax schemas`: show schemas, without loading a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import StringIO
from operator import itemgetter
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template
from rich.console import Console

from schemax.attributes import settings_of
from schemax.attributes.ready_made import (
    demonstrations_of,
    document_of,
    is_task,
    match_of,
    schema_names,
)
from schemax.base.options import option
from schemax.base.terminal import show, table
from schemax.commands import options
from schemax.commands.options import plain_warnings, refused_settings, verb
from schemax.compiler.prompt import usual_template
from schemax.evaluation.diagnosis.contract import contract_of, lines
from schemax.evaluation.shots import few_shot
from schemax.extraction.declarations import read_schema
from schemax.extraction.prompt_file import read_prompt_file

_SAMPLE = "A document of about a dozen words stands in the place of yours"

_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "slot": itemgetter("name"),
    "shown as": itemgetter("shown"),
    "type": lambda slot: slot["type"] + ", copied" * slot["extractive"],
    "null": lambda slot: "yes" if slot["nullable"] else "no",
    "k_max": itemgetter("k_max"),
    "tokens": itemgetter("key_tokens"),
    "key at": lambda slot: f"{slot['key_start']}-{slot['key_end']}",
    "value at": itemgetter("first_value"),
}


class Args(options.Tokenizer, options.Prompt, options.Schema):
    """Options"""

    text: str | None = option("TEXT")
    """A document, for lengths and position ids. Default: one of the category, if it is known."""
    as_json: bool = option("--json", default=False)
    """Print the contract as JSON."""


@verb
def explain(args: Args) -> None:
    """Shows what SCHEMA compiles to: prompt, skeleton, slots, stop rule, positions, who sees whom.

    Needs a tokenizer and no weights.
    """
    declared = read_schema(args.schema)
    settings = args.settings()
    prompt = None if args.prompt is None else read_prompt_file(args.prompt)
    settings["examples"] = few_shot(args.examples, declared, ignore_extra=args.ignore_extra)
    with plain_warnings(quiet=True):  # the contract contains the warnings
        model = args.unloaded(prompt)
        settings["examples"] = model.defaults.chosen_examples(declared, settings)
        with refused_settings():
            compiled = model.compile(declared, **settings)
        of_file = args.prompt if model.defaults.prompt.template else None
        named = args.template or of_file or settings_of(declared).template or model.own_template
        template = str(named or usual_template(compiled.decoding))
        sample = args.text or _sample(settings_of(declared).category)
        contract = contract_of(
            compiled, template=template, tokenizer=str(model.place), sample=sample
        )
    if args.as_json:
        print(json.dumps(contract, ensure_ascii=False, indent=2))
        return
    page = Template(
        Path(__file__).with_suffix(".jinja").read_text("utf-8"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    slots = StringIO()
    # A fixed width without a terminal: folded names are hard to read.
    console = Console(file=slots, width=None if sys.stdout.isatty() else 120)
    console.print(table(contract["slots"], _COLUMNS, left=3))
    matrix = lines(contract["picture"])
    show(page.render(contract, table=slots.getvalue(), matrix=matrix).rstrip())


def _sample(category: str) -> str:
    """Returns a document of a category: one that comes with the ready-made schema of its name."""
    match = match_of(category)
    demonstrations = demonstrations_of(match[0]) if match else ()
    return demonstrations[0][0] if demonstrations else _SAMPLE


def schemas() -> None:
    """Lists the ready-made schemas. `schemax explain NAME` shows the attributes of one."""
    rows = [(name, document_of(name)) for name in schema_names()]
    rows.sort(key=lambda row: is_task(row[0]))
    columns = {
        "name": lambda row: row[0],
        "category": lambda row: row[1]["category"],
        "of": lambda row: "other texts" if is_task(row[0]) else "products",
        "attributes": lambda row: len(row[1]["properties"]),
    }
    show(table(rows, columns, left=3))
