"""`schemax explain`: the compile-time contract, without loading a model."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemax.attributes import settings_of
from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, refused_settings
from schemax.commands.declarations import read_schema
from schemax.commands.explain_data import Contract, contract_of
from schemax.commands.few_shot import few_shot
from schemax.compiler import TextCodec, compile_schema, load_codec
from schemax.compiler.prompt import DEFAULT_TEMPLATE
from schemax.errors import ModelError
from schemax.resources import resource_dir

_SAMPLE = "Northfell Women's Tamarack Waterproof Hiking Boot, Dark Olive, 8.5 M US"

_LEGEND = {
    "autoregressive": "w: tokens written",
    "branched": "k: a key, v1.2: the second token of the first value",
    "gapped": "k: a key, v1.2: the second token of the first value",
}

# All that the contract depends on; weights are not among them.
_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "prompt.jinja"),
    "generation_config.json",
)


def explain(
    schema: options.Schema,
    model: options.Model = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", show_default=False, help="Folder that holds a tokenizer.json."
        ),
    ] = None,
    format: options.Format = None,
    template: options.Template = None,
    examples: options.Examples = None,
    decoding: options.Decoding = None,
    text: Annotated[
        str, typer.Option(metavar="TEXT", help="A document, for lengths and position ids.")
    ] = _SAMPLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Shows what SCHEMA compiles to: prompt, skeleton, slots, stop rule, positions, who sees whom.

    Needs a tokenizer and no weights.
    """
    if model is not None and tokenizer is not None:
        raise UsageError("give --model or --tokenizer, not both")
    declared = read_schema(schema)
    settings = options.checked_settings(format, template, decoding)
    settings["examples"] = few_shot(examples, declared) or ()
    folder = _folder_of(model or tokenizer or os.environ.get("SCHEMAX_MODEL"))
    own = folder / "prompt.jinja"
    chosen = template or settings_of(declared).template
    if chosen is None and own.is_file():
        settings["template"] = own.read_text("utf-8")
        chosen = str(own)
    with plain_warnings(quiet=True):  # the contract has the warnings in it
        with refused_settings():
            codec = _codec_of(folder)
            compiled = compile_schema(declared, codec, eos_ids=_eos_ids(folder, codec), **settings)
        contract = contract_of(
            compiled,
            template=str(chosen or DEFAULT_TEMPLATE),
            tokenizer=str(folder),
            sample=text,
        )
    if as_json:
        typer.echo(json.dumps(asdict(contract), ensure_ascii=False, indent=2))
    else:
        _show(contract)


def _folder_of(name: str | None) -> Path:
    """The folder with a tokenizer: a local one, one of the Hub's, or the embedded model's."""
    if name is None:
        return resource_dir("embedded")
    path = Path(name)
    if path.name == "tokenizer.json" and path.is_file():
        return path.parent
    if path.is_dir():
        return path
    options.check_folder(name)
    from huggingface_hub import snapshot_download

    from schemax.hub import cached_folder

    if folder := cached_folder(name):
        return folder
    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except (OSError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{name} is neither a folder nor found on the Hub: {first}") from error


def _eos_ids(folder: Path, codec: TextCodec) -> tuple[Any, ...]:
    """What ends an output: the tokenizer's ids, and those of the model's generation config."""
    path = folder / "generation_config.json"
    try:
        written = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        named = written.get("eos_token_id")
    except (ValueError, RecursionError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; download it again") from error
    ids = named if isinstance(named, list) else [] if named is None else [named]
    return (*codec.eos_ids, *ids)


def _codec_of(folder: Path) -> TextCodec:
    try:
        return load_codec(folder)
    except (ModelError, OSError):
        raise
    except Exception as error:  # tokenizers has no exception class of its own
        raise ModelError(f"{folder} holds a tokenizer that cannot be read: {error}") from error


def _show(contract: Contract) -> None:
    config = contract.decoding
    _title(f"{contract.schema} ({contract.category})")
    typer.echo(
        f"format {contract.format}, template {contract.template}\n"
        f"tokenizer {contract.tokenizer}\n"
        f"layout {config.layout}, documents {config.documents}, slots {config.slots}, "
        f"documents per prompt {config.documents_per_prompt}"
    )
    _title("Prompt")
    typer.echo(contract.prompt)
    _show_skeleton(contract)
    if contract.slots:
        _title("Slots")
        # Where nothing says how wide the page is: folded names are hard to read.
        width = None if sys.stdout.isatty() else 120
        Console(highlight=False, width=width).print(_slots_table(contract))
        typer.echo(
            "\ntokens: of the key. key at: its position ids. value at: that of the value's first "
            f"token.\nPositions are those of this document: {contract.sample}"
        )
    _title("Stop rule")
    ids = ", ".join(map(str, contract.stop.eos_ids)) or "none"
    subject = "The output" if contract.decoding.layout == "autoregressive" else "A slot"
    typer.echo(
        f"{subject} ends {contract.stop.rule}; or at an end-of-sequence id ({ids}); or after k_max "
        f"tokens.\nThe rule reads bytes; its automaton has {contract.stop.states} "
        f"{'state' if contract.stop.states == 1 else 'states'}, compiled to whole tokens."
    )
    _title("Who sees whom")
    typer.echo("\n".join((*contract.visibility, "", *contract.picture.lines())))
    typer.echo(
        "\nA row's token sees the tokens marked ■. I: instruction, D: document, S: what opens the "
        f"output, {_LEGEND[contract.decoding.layout]}."
    )
    _show_steps(contract)
    for warning in contract.warnings:
        typer.echo(f"\nWarning: {warning}")


def _show_skeleton(contract: Contract) -> None:
    layout = contract.decoding.layout
    if layout == "autoregressive":
        _title("Output, written by the model")
    elif layout == "branched":
        _title("Skeleton: each line continues the prompt separately; ⟦slot, k_max⟧ is filled in")
    else:
        _title("Skeleton: ⟦slot, k_max⟧ is filled in")
    typer.echo("\n".join(contract.skeleton))


def _slots_table(contract: Contract) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("slot", "shown as", "type"):
        table.add_column(name, overflow="fold")
    for name in ("null", "k_max", "tokens", "key at", "value at"):
        table.add_column(name, justify="right", no_wrap=True)
    for slot in contract.slots:
        table.add_row(
            Text(slot.name),
            Text(slot.shown),
            Text(slot.type),
            "yes" if slot.nullable else "no",
            str(slot.k_max),
            str(slot.key_tokens),
            f"{slot.key_start}-{slot.key_end}",
            str(slot.first_value),
        )
    return table


def _show_steps(contract: Contract) -> None:
    tokens, steps = contract.tokens, contract.steps
    _title("Steps")
    typer.echo(
        f"One prompt: instruction {tokens.instruction}, documents {tokens.documents}, opening "
        f"{tokens.opening}, keys {tokens.keys} tokens."
    )
    if contract.decoding.layout == "autoregressive":
        typer.echo(f"At most {steps.this} forward passes: the rendered skeleton and every k_max.")
    else:
        usual = (
            "autoregressive decoding cannot read lists of nested models"
            if steps.autoregressive is None
            else f"autoregressive decoding takes up to {steps.autoregressive}, the rendered "
            "skeleton and the sum of all k_max"
        )
        longest = (
            "the longest k_max"
            if steps.this == max(slot.k_max for slot in contract.slots)
            else "the k_max of a count and of the items that it calls for"
        )
        typer.echo(f"At most {steps.this} forward passes, {longest}; {usual}.")


def _title(text: str) -> None:
    typer.echo(f"\n{text}\n{'─' * min(len(text), 80)}")
