"""Option groups: a frozen dataclass per concern instead of a long list of parameters.

A group is a dataclass whose fields are annotated as Typer's options. Its class variable `panel` is
the heading under which `--help` shows them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_type_hints


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
            own = {field.name: given.pop(field.name) for field in fields(group)}
            given[name] = group(**own)
        command(**given)

    call.__dict__["__signature__"] = Signature(parameters)
    call.__annotations__ = {item.name: item.annotation for item in parameters}
    return call


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        _keyword(
            field.name,
            _in_panel(hints[field.name], group.panel),
            Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(group)
    ]


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _in_panel(annotation: Any, panel: str) -> Any:
    """The annotation with its option, which other commands may share, under this heading."""
    kind, option = get_args(annotation)
    option = copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option]
