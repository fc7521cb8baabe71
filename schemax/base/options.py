"""Groups of settings, which verbs take as options: see `commands/options.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, dataclass_transform


def option(spec: str = "", *, default: Any = None, **settings: Any) -> Any:
    """Returns a field of an `OptionGroup`. A default of MISSING requires the option.

    spec: further names of the option, then the placeholder of its value in --help: "-o FILE". A
        name with two dashes replaces the field's name. settings: others of `typer.Option`.
    """
    return field(default=default, metadata={"spec": spec, **settings})


@dataclass_transform(kw_only_default=True, frozen_default=True)
class OptionGroup:
    """A frozen dataclass of keywords, each of which a verb takes as an option.

    without: names of inherited fields that are no options of a verb, and keep their defaults.
    """

    without: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, without: str = "") -> None:
        inherited = (base.without for base in cls.__bases__ if issubclass(base, OptionGroup))
        cls.without = frozenset(without.split()).union(*inherited)
        dataclass(frozen=True, kw_only=True)(cls)
