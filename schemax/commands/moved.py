"""Removed verbs, and the command of a checkout that replaces each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typer import Context

from schemax.commands.console import UsageError

MOVED: Mapping[str, str] = {
    "data": "python -m reproduce.dataset",
    "pairwise": "python -m reproduce.sheet",
}
"""Removed verb -> command of a checkout, which takes the same arguments."""


def moved(verb: str, command: str) -> Callable[[Context], None]:
    """Returns a removed verb, which takes any arguments and names the command that replaces it."""

    def refuse(_: Context) -> None:
        raise UsageError(
            f"`schemax {verb}` is not installed any more; in a checkout of schemax, run "
            f"`{command}` with the same arguments"
        )

    return refuse
