"""Records of any shape become documents, or say what is wrong with them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from schemax.errors import InputError
from schemax.messages import clipped, some_of

# Of one document: tokenizers take some 60 bytes of memory for each, and their regular expressions
# give up on longer runs.
MOST_CHARACTERS = 10_000_000


@dataclass(frozen=True, slots=True)
class Document:
    """One record, read. text is None where `problem` says why it could not be.

    texts: what `text` is made of, by key ("text" for a bare str): strings as the record holds them,
        other values as they are shown.
    """

    index: int
    id: str | None
    category: str | None
    text: str | None
    problem: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shown:
    """Which keys of a record mean what.

    text: keys whose values the model is shown; None shows all but the id and the category.
    """

    text: tuple[str, ...] | None = None
    id: str = "id"
    category: str = "category"

    @classmethod
    def of(cls, text: str | Sequence[str] | None, id: str, category: str | None) -> Shown:
        """Accepts one key as well as several."""
        keys = (text,) if isinstance(text, str) else None if text is None else tuple(text)
        return cls(keys, id, category or "category")

    @property
    def needed(self) -> tuple[str, ...] | None:
        """The keys of a record that are looked at; None for all."""
        return None if self.text is None else (*self.text, self.id, self.category)

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Shown:
        """What the options of `Extractor.stream` say of it."""
        return cls.of(options.get("text"), options.get("id", "id"), options.get("category"))


def read_documents(products: Iterable[Any], shown: Shown) -> Iterator[Document]:
    """Documents in order; a record that cannot be read is one with a `problem`.

    Raises InputError for a bare str or mapping in place of many products.
    """
    if isinstance(products, (str, bytes, Mapping)):
        raise InputError(
            f"products must be an iterable of records, not a single {type(products).__name__}: "
            "write [product]"
        )
    if hasattr(products, "columns") and hasattr(products, "shape"):  # iterates over columns
        raise InputError(
            f"products must be an iterable of records, not a {type(products).__name__}: "
            "extract_frame reads frames"
        )
    try:
        records = iter(products)
    except TypeError:
        raise InputError(
            f"products must be an iterable of records, not {type(products).__name__}"
        ) from None
    return (_read(index, record, shown) for index, record in enumerate(records))


def shown_text(record: Any, shown: Shown) -> tuple[str, dict[str, str]]:
    """What the model is shown of a record, which may be nothing; and what that is made of, by key.

    Raises ValueError, which says why, for a record that cannot be shown, or whose text has more
    than 10,000,000 characters.
    """
    if isinstance(record, str):
        text, texts = record, {"text": record}
    elif isinstance(record, Mapping):
        text, texts = _text_of_mapping(record, shown)
    else:
        raise ValueError(f"a record must be text or a mapping, not {type(record).__name__}")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"the text has {len(text):,} characters, more than the {MOST_CHARACTERS:,} of the "
            "longest document that is read; split it"
        )
    return text, texts


def _read(index: int, record: Any, shown: Shown) -> Document:
    if isinstance(record, InputError):  # a reader's, in place of a record that it could not read
        return Document(index, None, None, None, str(record))
    document_id = category = None
    if isinstance(record, Mapping):
        found_id, found_category = record.get(shown.id), record.get(shown.category)
        document_id = None if _is_missing(found_id) else str(found_id)
        category = None if found_category is None else str(found_category)
    try:
        text, texts = shown_text(record, shown)
    except ValueError as error:
        return Document(index, document_id, category, None, str(error))
    if not text.strip():
        return Document(index, document_id, category, None, "the text is empty")
    return Document(index, document_id, category, text, texts=texts)


def _text_of_mapping(record: Mapping[Any, Any], shown: Shown) -> tuple[str, dict[str, str]]:
    keys: Iterable[Any]
    if shown.text is None:
        keys = [key for key in record if key not in (shown.id, shown.category)]
    else:
        keys = shown.text
        missing = [key for key in keys if key not in record]
        if len(missing) == len(shown.text):
            has = some_of(record) or "nothing"
            raise ValueError(f"the record has no {' or '.join(missing)}; it has {has}")
    values = [(key, record.get(key)) for key in keys]
    parts = [(str(key), _as_text(key, value), value) for key, value in values]
    parts = [part for part in parts if part[1]]
    texts = {key: value if isinstance(value, str) else text for key, text, value in parts}
    if len(parts) == 1:
        return parts[0][1], texts
    return "\n".join(f"{key}: {text}" for key, text, _ in parts), texts


def _as_text(key: Any, value: Any) -> str:
    """Raises ValueError for a value that is neither scalar nor a list of scalars."""
    if isinstance(value, (list, tuple)) and all(map(_is_scalar, value)):
        return ", ".join(filter(None, (_as_text(key, item) for item in value)))
    if not _is_scalar(value):
        raise ValueError(
            f"{clipped(repr(key))} holds a {type(value).__name__}, which cannot be shown as text; "
            "name the keys to show with text=(...)"
        )
    if _is_missing(value):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, numbers.Number, Decimal))
