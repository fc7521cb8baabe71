"""`schemax doctor`: tests whether and how schemax runs on a model."""

from __future__ import annotations

import json
import sys

import typer

from schemax.base.messages import say
from schemax.commands import options
from schemax.commands.console import plain_warnings
from schemax.commands.option_groups import option, verb
from schemax.evaluation.diagnosis import doctor as examine


class Given(options.ModelArgument, options.Model):
    """Options"""

    attn: str | None = option(show_default=False)
    """sdpa, eager or flex_attention. Default: the model's."""
    as_json: bool = option("--json", default=False)
    """The diagnosis as JSON."""


@verb
def doctor(given: Given) -> None:
    """Examines a model on this machine: is decoding exact, in which ways, and at what cost?

    Every way to decode is compared with plain forward passes on the model's own weights. Exit
    status: 0 ready, 1 not ready, 2 the model cannot be loaded.
    """
    name, attn = str(options.model_place(given.model)), given.attn
    if sys.stderr.isatty():
        say(f"examining {name} ...")
    with plain_warnings(quiet=given.as_json):
        found = examine(name, device=given.device, dtype=given.dtype, attn_implementation=attn)
    typer.echo(json.dumps(found.to_dict(), indent=2) if given.as_json else str(found))
    raise typer.Exit(0 if found.ok else 1)
