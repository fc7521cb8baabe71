"""Writes an instance as the JSON text that a client's schema describes, with log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel, RootModel

from schemax.attributes.json_checks import json_properties
from schemax.results import Extraction, SlotText
from schemax.serve.answers import json_text

Piece = tuple[str, str | None]
"""(JSON text, the dotted name of the field whose value it is, None for keys and punctuation)."""


def pieces(value: BaseModel) -> list[Piece]:
    """The JSON text of an instance, piece by piece, under the names of the client's schema."""
    plain = value.model_dump(mode="json", by_alias=True, warnings=False)
    return list(_merged_pieces(_value(value, plain, ())))


def _value(value: Any, plain: Any, path: tuple[str, ...]) -> Iterator[Piece]:
    """Yields the pieces of a value. plain: its JSON value, with null for missing properties."""
    if isinstance(value, RootModel):
        yield from _value(value.root, plain, path)
    elif isinstance(value, BaseModel):
        # Leaves out optional properties that are null, which their schema may not allow.
        names = json_properties(type(value))
        shown = [
            (name, key)
            for name, (key, is_required) in names.items()
            if is_required or plain[key] is not None
        ]
        members = ((key, getattr(value, name), plain[key], name) for name, key in shown)
        yield from _members(members, path)
    elif isinstance(plain, dict) and any(isinstance(item, BaseModel) for item in value.values()):
        pairs = zip(value.values(), plain.items(), strict=True)
        yield from _members(((key, item, shown, key) for item, (key, shown) in pairs), path)
    elif isinstance(plain, list) and any(isinstance(item, BaseModel) for item in value):
        yield "[", None
        for n, (item, shown) in enumerate(zip(value, plain, strict=True)):
            if n:
                yield ", ", None
            yield from _value(item, shown, (*path, str(n)))
        yield "]", None
    else:
        yield json_text(plain), ".".join(path)


def _members(
    members: Iterable[tuple[str, Any, Any, str]], path: tuple[str, ...]
) -> Iterator[Piece]:
    """Yields the pieces of an object. members: (key, value, its JSON value, name of the field)."""
    opening = "{"
    for key, value, plain, name in members:
        yield f"{opening}{json_text(key)}: ", None
        opening = ", "
        yield from _value(value, plain, (*path, name))
    yield ("}" if opening == ", " else "{}"), None


def _merged_pieces(parts: Iterator[Piece]) -> Iterator[Piece]:
    """Joins keys and punctuation between two values into one piece."""
    held = ""
    for text, field in parts:
        if field is None:
            held += text
        else:
            yield held, None
            held = ""
            yield text, field
    yield held, None


def text_of(parts: Sequence[Piece]) -> str:
    return "".join(text for text, _ in parts)


def inner(parts: Sequence[Piece], *, is_first: bool) -> list[Piece]:
    """The pieces of a one-field instance within a larger instance; [] for an omitted field."""
    if text_of(parts) == "{}":
        return []
    texts = [text for text, _ in parts]
    texts[0] = texts[0] if is_first else f", {texts[0][1:]}"
    texts[-1] = texts[-1][:-1]
    return [(text, field) for text, (_, field) in zip(texts, parts, strict=True) if text]


def behind(sent: str, parts: Sequence[Piece]) -> list[Piece]:
    """The pieces behind the text that was sent. Raises ValueError if they begin otherwise."""
    unsent = []
    for text, field in parts:
        begun, sent = sent[: len(text)], sent[len(text) :]
        if not text.startswith(begun):
            raise ValueError("the text of a field changed after it was sent")
        if end := text[len(begun) :]:
            unsent.append((end, field))
    return unsent


def logprobs(parts: Sequence[Piece], item: Extraction[Any]) -> list[dict[str, Any]]:
    """Log-probabilities of pieces, as OpenAI's tokens; 0 for keys, which are forced."""
    return [
        {
            "token": text,
            "bytes": list(text.encode()),
            "logprob": _logprob(item, field),
            "top_logprobs": [],
        }
        for text, field in parts
    ]


def _logprob(item: Extraction[Any], field: str | None) -> float:
    result = item.fields.get(field) if field is not None else None
    if result is None or result.probability is None:
        return 0.0
    return math.log(max(result.probability, 1e-38))


def refusal(item: Extraction[Any]) -> str:
    """The reason why there is no instance."""
    return "; ".join(
        f"{error.field}: {error.message}" if error.field else error.message for error in item.errors
    )


def written(slots: Iterable[SlotText | None]) -> int:
    """Counts the tokens of values."""
    return sum(
        slot.tokens + sum(map(written, slot.items or ())) for slot in slots if slot is not None
    )
