"""Options and arguments of verbs, as fields of classes.

A class declares the options of one concern: its docstring is their heading in --help, and the text
below a field is the option's help. A verb takes one class, which inherits all its concerns.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from itertools import pairwise
from typing import Annotated, Any, ClassVar, dataclass_transform, get_type_hints

from typer import Argument, Option


def option(spec: str = "", *, default: Any = None, **settings: Any) -> Any:
    """Returns a field of `Options`. A default of MISSING requires the option.

    spec: further names of the option, then the placeholder of its value in --help: "-o FILE". A
        name with two dashes replaces the field's name. settings: others of `typer.Option`.
    """
    return field(default=default, metadata={"spec": spec, **settings})


def argument(metavar: str, *, default: Any = MISSING) -> Any:
    """Returns a field of `Options` that is a positional argument of the verb."""
    return field(default=default, metadata={"metavar": metavar})


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Options:
    """Options

    without: names of inherited fields that are no options of a verb, and keep their defaults.
    """

    without: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, without: str = "") -> None:
        inherited = (base.without for base in cls.__bases__ if issubclass(base, Options))
        cls.without = frozenset(without.split()).union(*inherited)
        dataclass(frozen=True, kw_only=True)(cls)


def verb(command: Callable[..., None]) -> Callable[..., None]:
    """Wraps a command for Typer: every field of its `Options` becomes a parameter."""
    hints = get_type_hints(command)
    groups: dict[str, Any] = {n: hint for n, hint in hints.items() if _is_group(hint)}
    parameters: list[Parameter] = []
    for name, one in signature(command).parameters.items():
        own = one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        parameters += _parameters(groups[name]) if name in groups else [own]

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            shown = [one.name for one in fields(group) if one.name not in group.without]
            given[name] = group(**{one: given.pop(one) for one in shown})
        command(**given)

    call.__dict__["__signature__"] = Signature(parameters)
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Options)


def _parameters(group: type[Any]) -> Iterator[Parameter]:
    hints = get_type_hints(group)
    for one in fields(group):
        if one.name not in group.without:
            owners = [c for c in group.__mro__ if one.name in inspect.get_annotations(c)]
            kind: Any = hints[one.name]
            made: Any = _made(one, owners)
            known = Parameter.empty if one.default is MISSING else one.default
            yield Parameter(
                one.name, Parameter.KEYWORD_ONLY, default=known, annotation=Annotated[kind, made]
            )


def _made(one: Field[Any], owners: Sequence[type[Any]]) -> Any:
    """Returns the option or argument of a field. owners: the classes that declare it, subclasses
    first; a subclass may inherit its help."""
    settings = dict(one.metadata)
    texts = (_helps(owner.__module__).get((owner.__name__, one.name)) for owner in owners)
    help = next(filter(None, texts), None)
    if "metavar" in settings:
        return Argument(metavar=settings["metavar"], show_default=False, help=help)
    words = settings.pop("spec", "").split()
    names = [word for word in words if word.startswith("-")]
    if not any(name.startswith("--") for name in names):
        names.insert(0, f"--{one.name.replace('_', '-')}")
    metavar = " ".join(word for word in words if word not in names) or None
    panel = owners[0].__doc__
    return Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **settings)


@cache
def _helps(module: str) -> dict[tuple[str, str], str]:
    """Returns (class, field) -> the text below the field, for a module's classes."""
    found = {}
    parsed = ast.parse(inspect.getsource(sys.modules[module])).body
    for made in (one for one in parsed if isinstance(one, ast.ClassDef)):
        for one, text in pairwise(made.body):
            if isinstance(one, ast.AnnAssign) and isinstance(text, ast.Expr):
                help = ast.literal_eval(text.value)
                found[made.name, ast.unparse(one.target)] = " ".join(help.split())
    return found
