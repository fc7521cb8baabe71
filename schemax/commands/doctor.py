"""`schemax doctor`: tests whether and how schemax runs on a model."""

from __future__ import annotations

import json
import sys

import typer

from schemax.base.messages import say
from schemax.base.options import option
from schemax.commands import options
from schemax.commands.options import argument, plain_warnings, verb
from schemax.evaluation.diagnosis import doctor as examine


class Args(options.Model):
    """Options"""

    model: str | None = argument("MODEL", default=None)
    """Folder or Hugging Face Hub id. Default: $SCHEMAX_MODEL, else the embedded model."""
    attn: str | None = option(show_default=False)
    """sdpa, eager or flex_attention. Default: the model's."""
    as_json: bool = option("--json", default=False)
    """The diagnosis as JSON."""


@verb
def doctor(args: Args) -> None:
    """Examines a model on this machine: is decoding exact, in which ways, and at what cost?

    Every way to decode is compared with plain forward passes on the model's own weights. Exit
    status: 0 ready, 1 not ready, 2 the model cannot be loaded.
    """
    name, attn = str(options.model_place(args.model)), args.attn
    if sys.stderr.isatty():
        say(f"examining {name} ...")
    with plain_warnings(quiet=args.as_json):
        diagnosis = examine(name, device=args.device, dtype=args.dtype, attn_implementation=attn)
    typer.echo(json.dumps(diagnosis.to_dict(), indent=2) if args.as_json else str(diagnosis))
    raise typer.Exit(0 if diagnosis.ok else 1)
