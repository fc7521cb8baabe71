"""`schemax doctor`: whether and how schemax runs on a model, with proof."""

from __future__ import annotations

import json
import sys

import typer

from schemax.commands import options
from schemax.commands.console import plain_warnings, say
from schemax.commands.option_groups import grouped, option
from schemax.diagnosis import doctor as examine


@grouped
def doctor(
    model: options.ModelArgument = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    attn_implementation: str | None = option(
        "sdpa, eager or flex_attention. Default: the model's.", show_default=False
    ),
    as_json: bool = option("The diagnosis as JSON.", "--json", default=False),
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
