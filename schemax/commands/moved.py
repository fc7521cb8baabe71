"""Verbs that a checkout has now, and the command that took the place of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typer import Context

from schemax.commands.console import UsageError

MOVED: Mapping[str, str] = {
    "data": "python -m reproduce.dataset",
    "pairwise": "python -m reproduce.sheet",
}
"""Old verb -> command of a checkout, which takes the same arguments."""


def moved(verb: str, command: str) -> Callable[[Context], None]:
    """The old verb: it takes any arguments, and names the command that took its place."""

    def refuse(_: Context) -> None:
        raise UsageError(
            f"`schemax {verb}` is not installed any more; in a checkout of schemax, run "
            f"`{command}` with the same arguments"
        )

    return refuse
