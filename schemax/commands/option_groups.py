"""Options as fields: beside the parameters of a command, or in a frozen dataclass per concern.

A field of a group is an `option`, or annotated as one that several commands share. The group's
docstring is the heading under which `--help` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_type_hints

from typer import Argument, Option


def option(help: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """A field of a group, or the default of a command's parameter; named as that is unless a name
    with two dashes is given. A default of MISSING requires the option."""
    return field(default=default, metadata={"help": help, "names": names, "settings": settings})


def argument(help: str, metavar: str, *, default: Any = MISSING) -> Any:
    """The same for an argument, which has no name but its metavar."""
    made = Argument(metavar=metavar, show_default=False, help=help)
    return field(default=default, metadata={"argument": made})


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer reads it: every group among its parameters is one option per field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += _options(groups[name])
        elif isinstance(parameter.default, Field):
            hint: Any = hints[name]
            kind = Annotated[hint, _made(name, parameter.default)]
            parameters.append(_keyword(name, kind, parameter.default.default))
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
            made = _made(one.name, one)
        made.rich_help_panel = group.__doc__
        yield _keyword(one.name, Annotated[kind, made], one.default)


def _made(name: str, one: Field[Any]) -> Any:
    if "argument" in one.metadata:
        return one.metadata["argument"]
    names = one.metadata["names"]
    if not any(known.startswith("--") for known in names):
        names = (f"--{name.replace('_', '-')}", *names)
    return Option(*names, help=one.metadata["help"], **one.metadata["settings"])


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    known = Parameter.empty if default is MISSING else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=known, annotation=annotation)
