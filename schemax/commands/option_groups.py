"""Option groups: a frozen dataclass per concern instead of a long list of parameters.

A field of a group is an `option`, or annotated as one that several commands share. The group's
docstring is the heading under which `--help` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_type_hints

from typer import Option


def option(help: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """A field of a group, named as the field is unless a name with two dashes is given."""
    return field(default=default, metadata={"help": help, "names": names, "settings": settings})


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer reads it: every group among its parameters is one option per field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += _options(groups[name])
        else:
            parameters.append(_keyword(name, hints[name], parameter.default))

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        command(**given)

    call.__dict__["__signature__"] = Signature(parameters)
    call.__annotations__ = {item.name: item.annotation for item in parameters}
    return call


def _options(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for one in fields(group):
        kind = hints[one.name]
        if not one.metadata:
            kind, shared = get_args(kind)
            made = copy(shared)  # which other commands may show under another heading
        else:
            names = one.metadata["names"]
            if not any(name.startswith("--") for name in names):
                names = (f"--{one.name.replace('_', '-')}", *names)
            made = Option(*names, help=one.metadata["help"], **one.metadata["settings"])
        made.rich_help_panel = group.__doc__
        default = Parameter.empty if one.default is MISSING else one.default
        yield _keyword(one.name, Annotated[kind, made], default)


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
