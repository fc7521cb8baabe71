"""`schemax doctor`: whether and how schemax runs on a model, with proof."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from schemax.commands import options
from schemax.commands.console import plain_warnings, say
from schemax.diagnosis import doctor as examine


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            show_default=False,
            help="Folder or Hugging Face Hub id. Default: $SCHEMAX_MODEL, else the embedded model.",
        ),
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    attn_implementation: Annotated[
        str | None,
        typer.Option(
            show_default=False, help="sdpa, eager or flex_attention. Default: the model's."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The diagnosis as JSON.")] = False,
) -> None:
    """Examines a model on this machine: is decoding exact, in which ways, and at what cost?

    Every way to decode is compared with plain forward passes on the model's own weights. Exit
    status: 0 ready, 1 not ready, 2 the model cannot be loaded.
    """
    name = str(options.model_place(model))
    if sys.stderr.isatty():
        say(f"examining {name} ...")
    with plain_warnings(quiet=as_json):
        found = examine(name, device=device, dtype=dtype, attn_implementation=attn_implementation)
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))
    raise typer.Exit(0 if found.ok else 1)
