"""`schemax explain`: the compile-time contract, without loading a model."""

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
from schemax.commands import options
from schemax.commands.console import plain_warnings, refused_settings, show, table
from schemax.commands.declarations import read_schema
from schemax.commands.explain_data import contract_of
from schemax.commands.few_shot import few_shot
from schemax.commands.option_groups import grouped, option
from schemax.commands.tokenizer_folder import TokenizerOption, codec_of, eos_ids_of, folder_of
from schemax.commands.visibility_picture import lines
from schemax.compiler import compile_schema
from schemax.compiler.prompt import DEFAULT_TEMPLATE
from schemax.config import resolve_decoding
from schemax.demonstrations import usual_demonstrations
from schemax.fitted import demonstrated
from schemax.prompt_file import PromptFile, read_prompt_file
from schemax.trained import FILE as TRAINED
from schemax.trained import as_trained, read_trained
from schemax.untrained import as_untrained, is_led

_SAMPLE = "Northfell Women's Tamarack Waterproof Hiking Boot, Dark Olive, 8.5 M US"

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


@grouped
def explain(
    schema: options.Schema,
    model: options.Model = None,
    tokenizer: TokenizerOption = None,
    format: options.Format = None,
    template: options.Template = None,
    prompt: options.Prompt = None,
    examples: options.Examples = None,
    decoding: options.Decoding = None,
    text: str = option(
        "A document, for lengths and position ids.", default=_SAMPLE, metavar="TEXT"
    ),
    as_json: bool = option("The same as JSON.", "--json", default=False),
) -> None:
    """Shows what SCHEMA compiles to: prompt, skeleton, slots, stop rule, positions, who sees whom.

    Needs a tokenizer and no weights.
    """
    declared = read_schema(schema)
    settings = options.checked_settings(format, template, decoding)
    fitted = PromptFile() if prompt is None else read_prompt_file(prompt)
    folder = folder_of(model, tokenizer)
    own = folder / "prompt.jinja"
    chosen = template or settings_of(declared).template
    if template is None and fitted.template is not None:
        settings["template"] = fitted.template
        chosen = str(prompt)
    if chosen is None and own.is_file():
        settings["template"] = own.read_text("utf-8")
        chosen = str(own)
    if (folder / TRAINED).is_file():
        trained = read_trained(folder / TRAINED)
        format = format or fitted.format or settings_of(declared).format or trained.format
        asked = settings["decoding"] or fitted.decoding or trained.decoding
        settings["decoding"] = asked and as_trained(asked, trained.decoding)
    settings["format"] = format or fitted.format
    settings["decoding"] = settings["decoding"] or fitted.decoding
    shown = few_shot(examples, declared)
    shown = demonstrated(fitted, declared) if shown is None else shown
    if prompt is None and not own.is_file() and not (folder / TRAINED).is_file():
        config = resolve_decoding(settings["decoding"])
        written = settings["template"] or chosen or config.template
        settings["decoding"] = as_untrained(config, written)
        if shown is None:
            shown = usual_demonstrations(declared, written, config)
            settings["is_led"] = not shown and is_led(config, written)
    settings["examples"] = shown or ()
    with plain_warnings(quiet=True):  # the contract has the warnings in it
        with refused_settings():
            codec = codec_of(folder)
            compiled = compile_schema(
                declared, codec, eos_ids=eos_ids_of(folder, codec), **settings
            )
        contract = contract_of(
            compiled,
            template=str(chosen or DEFAULT_TEMPLATE),
            tokenizer=str(folder),
            sample=text,
        )
    if as_json:
        print(json.dumps(contract, ensure_ascii=False, indent=2))
        return
    page = Template(
        Path(__file__).with_suffix(".jinja").read_text("utf-8"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    slots = StringIO()
    # Where nothing says how wide the page is: folded names are hard to read.
    console = Console(file=slots, width=None if sys.stdout.isatty() else 120)
    console.print(table(contract["slots"], _COLUMNS, left=3))
    matrix = lines(contract["picture"])
    show(page.render(contract, table=slots.getvalue(), matrix=matrix).rstrip())
