"""Labels as annotators state them, before values have types: texts, lists, items, nulls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

from schemax.attributes import Attribute
from schemax.base.messages import counted
from schemax.errors import InputError

Label: TypeAlias = str | None | tuple[str | None, ...]
"""A label: a value, an explicit null, or accepted alternatives, the canonical one first.

An attribute without a label is not annotated, which differs from null."""

Stated: TypeAlias = "str | Sequence[Stated] | Mapping[str, Stated] | None"
"""A label without a type: a text, a list, the leaves of an item by name, or an explicit null."""


def named(label: str, attributes: Sequence[Attribute]) -> Attribute | None:
    """The only attribute of that name, else title, else path of titles; else the only one that
    differs in case alone."""
    for names in zip(*map(_names, attributes), strict=True):
        if names.count(label) == 1:
            return attributes[names.index(label)]
    folded = label.strip().casefold()
    alike = [a for a in attributes if folded in (name.casefold() for name in _names(a))]
    return alike[0] if len(alike) == 1 else None


def _names(attribute: Attribute) -> tuple[str, ...]:
    return attribute.name, attribute.label, ".".join(attribute.labels)


def _items_in(attribute: Attribute, text: str) -> list[Any] | None:
    """The items of a JSON array, or the pairs of an object for a dict; None for any other text.

    Numbers stay as they are written.
    """
    try:
        parsed = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    if isinstance(parsed, Mapping) and attribute.is_mapping:
        return _pairs(parsed)
    return parsed if isinstance(parsed, list) else None


def _pairs(mapping: Mapping[str, Any]) -> list[Any]:
    return [{"key": key, "value": value} for key, value in mapping.items()]


def as_array(attribute: Attribute, label: Label) -> Label:
    """A label of a list as the JSON array that predictions are compared with; null as it is.

    Raises InputError for a text that is no item of the list.
    """
    accepted = label if isinstance(label, tuple) else (label,)
    stated = [text for text in accepted if text is not None]
    if all(_items_in(attribute, text) is None for text in stated):
        return _array(attribute, stated) if stated else None
    arrays = (None if text is None else _array(attribute, text) for text in accepted)
    several = tuple(dict.fromkeys(arrays))
    return several if len(several) > 1 else several[0]


def _array(attribute: Attribute, stated: Stated) -> str | None:
    try:
        rows = items_of(attribute, stated)
    except ValueError as error:
        raise InputError(f"{attribute.label}: {error}") from error
    return None if rows is None else as_text(named_rows(attribute, rows))


def items_of(attribute: Attribute, value: Stated) -> Stated:
    """The items of a list, of a JSON array or one text: texts, or rows of the leaves of an item.

    Raises ValueError for a value that is no item of the list.
    """
    items: Any = value
    if isinstance(value, str):
        array = _items_in(attribute, value)
        items = [value] if array is None else array
    elif isinstance(value, Mapping):
        items = _pairs(value) if attribute.is_mapping else [value]
    rows = [_row(attribute, item) if attribute.fields else _scalar(item) for item in items or ()]
    most = attribute.num_items[1]
    if attribute.two_phase and len(rows) > most:
        raise ValueError(
            f"{counted(len(rows), 'item')}, and {most} can be read; declare a larger max_length"
        )
    return rows or None


def _scalar(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)


def _row(attribute: Attribute, item: Any) -> list[Stated]:
    """The labels of an item's leaves, in their order."""
    if not isinstance(item, Mapping):
        raise ValueError(f"an item must be a JSON object, not {item!r}")
    stated: dict[str, Stated] = {}
    for name, value in flat(item, attribute.fields).items():
        leaf = named(name, attribute.fields)
        if leaf is None:
            known = ", ".join(repr(leaf.name) for leaf in attribute.fields)
            raise ValueError(f"an item has no {name!r}; it has {known}")
        if leaf.is_list:
            stated[leaf.name] = items_of(leaf, value)
        else:
            stated[leaf.name] = None if value is None else _scalar(value)
    return [stated.get(leaf.name) for leaf in attribute.fields]


def flat(
    nested: Mapping[str, Any], attributes: Sequence[Attribute], path: str = ""
) -> dict[str, Any]:
    """Nested models by dotted path, as attributes are named; dicts as they are."""
    leaves: dict[str, Any] = {}
    names = {attribute.name for attribute in attributes if attribute.is_mapping}
    for key, value in nested.items():
        if isinstance(value, Mapping) and f"{path}{key}" not in names:
            leaves |= flat(value, attributes, f"{path}{key}.")
        else:
            leaves[f"{path}{key}"] = value
    return leaves


def as_stated(value: Any) -> Stated:
    """A JSON value as a label states it. Raises ValueError for lists of lists."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return {key: as_stated(item) for key, item in value.items()}
    if isinstance(value, list) and not any(isinstance(item, list) for item in value):
        return [as_stated(item) for item in value if item is not None] or None
    raise ValueError(f"a value is text, a number, a boolean, null or a list, not {value!r}")


def titles_of(attributes: Sequence[Attribute]) -> dict[str, str]:
    """The names of attributes in labels: their titles, unless several have the same."""
    counts = Counter(attribute.label for attribute in attributes)
    return {a.name: a.label if counts[a.label] == 1 else a.name for a in attributes}


def as_text(value: Any) -> str | None:
    """A typed value as labels are written: numbers and booleans as in JSON, lists as its arrays.

    An item of nested models is an object of texts, without its nulls.
    """
    if isinstance(value, Enum):
        return as_text(value.value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item) for item in value]
        # Labels call an empty list null.
        return json.dumps(items, ensure_ascii=False) if items else None
    return str(value)


def named_rows(attribute: Attribute, rows: Any) -> Any:
    """The rows of a list as objects, those of a dict sorted by key; scalar items as they are."""
    if not attribute.fields or rows is None:
        return rows
    items = [
        {
            leaf.name: named_rows(leaf, part)
            for leaf, part in zip(attribute.fields, row, strict=True)
        }
        for row in rows
    ]
    return sorted(items, key=lambda pair: str(pair["key"])) if attribute.is_mapping else items


def _plain(value: Any) -> Any:
    """An item of a list as text; an item of nested models as its leaves' texts, without nulls."""
    if not isinstance(value, Mapping):
        return as_text(value)
    texts = {name: as_text(part) for name, part in value.items()}
    return dict(sorted((name, text) for name, text in texts.items() if text is not None))
