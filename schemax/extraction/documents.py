"""The inputs of a call: options, and records of any shape, which become documents."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from inspect import Parameter, signature
from typing import Any, TypedDict, get_args

from schemax.attributes.examples import FewShotExamples
from schemax.attributes.settings import require_model
from schemax.base.messages import clipped, did_you_mean, some_of
from schemax.compiler.prompt import TemplateLike
from schemax.config import DecodingConfig
from schemax.errors import Cause, InputError, SchemaError
from schemax.extraction.cascade import Answered
from schemax.formats import OutputFormat
from schemax.reading.markup import Html, as_marked_up, plain_text
from schemax.results import Extraction, failed

# Per document: tokenizers take some 60 bytes of memory for a character, and their regular
# expressions give up on longer runs.
MOST_CHARACTERS = 10_000_000


class Options(TypedDict, total=False):
    """The options of `Extractor.stream`, which explains them."""

    text: str | Sequence[str] | None
    id: str
    category: str | None
    format: str | OutputFormat | None
    template: TemplateLike | None
    decoding: str | DecodingConfig | None
    examples: FewShotExamples | None
    html: Html


def check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that is not among `Options`. function: has the options."""
    if strange := sorted(options.keys() - Options.__annotations__.keys()):
        parameters = signature(function).parameters.values()
        own = [item.name for item in parameters if item.kind is Parameter.KEYWORD_ONLY]
        known = list(dict.fromkeys([*Options.__annotations__, *own]))
        raise TypeError(
            f"{function.__name__}() has no option {strange[0]!r}{did_you_mean(strange[0], known)}; "
            f"it has {', '.join(known)}"
        )


@dataclass(frozen=True, slots=True)
class Document:
    """A record as text. text: None if the record cannot be read, for the reason in `problem`.

    texts: the parts of `text` by key ("text" for a bare str): strings as in the record, other
        values as shown. A `MarkedUp` text is shown without its HTML.
    answered: what earlier models of a cascade have answered.
    """

    index: int
    id: str | None
    category: str | None
    text: str | None
    problem: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    answered: Answered | None = None

    def prompts(self, own: str) -> str:
        """What all models have read before the document. own: what the present one reads."""
        return own if self.answered is None else f"{self.answered.prompt}\n{own}"

    def failed(self, problem: str, steps: int = 0, cause: Cause | None = None) -> Extraction[Any]:
        """The extraction without this model's answers."""
        item = failed(self.index, self.id, problem, steps=steps, cause=cause)
        return item if self.answered is None else self.answered.instead_of(item)


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The keys of a record that are its text, id and category.

    text: keys whose values the model is shown; None shows all but the id and the category.
    html: whether HTML in texts is left out.
    """

    text: tuple[str, ...] | None = None
    id: str = "id"
    category: str = "category"
    html: Html = "strip"

    @classmethod
    def of(
        cls,
        text: str | Sequence[str] | None = None,
        id: str = "id",
        category: str | None = None,
        html: Html = "strip",
    ) -> RecordFields:
        """Raises ValueError for a key that is not text, and for an unknown `html`.

        text: one key or several.
        """
        if html not in get_args(Html):
            raise ValueError(f'html must be "strip" or "keep", not {html!r}')
        if not isinstance(text, str | Sequence | None):
            as_name = f"; write {str(text)!r}" if isinstance(text, numbers.Number) else ""
            raise ValueError(f"text must be the name of a key, or several, not {text!r}{as_name}")
        keys = (text,) if isinstance(text, str) else None if text is None else tuple(text)
        if strange := [key for key in keys or () if not isinstance(key, str)]:
            raise ValueError(
                f"text holds {strange[0]!r}, which is no text; write {str(strange[0])!r}"
            )
        return cls(keys, id, category or "category", html)

    @property
    def needed(self) -> tuple[str, ...] | None:
        """The keys of a record that are read; None for all."""
        return None if self.text is None else (*self.text, self.id, self.category)

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> RecordFields:
        """Reads the options of `Extractor.stream`."""
        named = {"text", "id", "category", "html"} & options.keys()
        return cls.of(**{name: options[name] for name in named})

    @property
    def chosen(self) -> tuple[str, ...]:
        """The keys of id and category, unless they are the defaults."""
        pairs = (("id", self.id), ("category", self.category))
        return tuple(key for usual, key in pairs if key != usual)

    def check(self, there: Iterable[str], complaint: str) -> None:
        """Raises InputError for a named key that does not exist.

        complaint: the beginning of the message, such as "the frame has no column".
        """
        names = list(there)
        for key in (*(self.text or ()), *self.chosen) if names else ():
            if key not in names:
                raise _unknown(key, names, complaint)

    def unnamed(self, there: Iterable[str]) -> list[str]:
        """The keys that the model is shown although they are not named."""
        if self.text is not None:
            return []
        return [key for key in there if key not in (self.id, self.category)]


def read_documents(products: Iterable[Any], shown: RecordFields) -> Iterator[Document]:
    """Documents in order; for a record that cannot be read, a document with a `problem`.

    Raises InputError for a str, a mapping or a frame in place of many products.
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
    if isinstance(products, (list, tuple)):
        _check_named(products, shown)
    return (_read(index, record, shown) for index, record in enumerate(records))


def _check_named(records: Sequence[Any], shown: RecordFields) -> None:
    """Raises InputError for a named key that no record has.

    For a key to show, and for a single record, it does so only if another key is similar, since
    these records may happen to lack the key. For a lone key to show, every row reports the error.
    """
    wanted = shown.text if shown.text and len(shown.text) > 1 else ()
    missing = dict.fromkeys((*wanted, *shown.chosen))
    there: dict[str, None] = {}
    for record in records if missing else ():
        if isinstance(record, Mapping):
            there |= dict.fromkeys(map(str, record))
            missing = {key: None for key in missing if key not in there}
        if not missing:
            return
    unused = [name for name in there if name not in (*wanted, *shown.chosen)]
    for key in missing:
        if there and ((key in shown.chosen and len(records) > 1) or did_you_mean(key, unused)):
            raise _unknown(key, [*there], "no record has the key")


def _unknown(key: str, names: Sequence[str], complaint: str) -> InputError:
    return InputError(f"{complaint} {key!r}{did_you_mean(key, names)}; there are {some_of(names)}")


def shown_text(record: Any, shown: RecordFields) -> tuple[str, dict[str, str]]:
    """The text of a record, which may be empty, and its parts by key.

    Raises ValueError, with the reason, for a record that cannot be shown, or whose text has more
    than 10,000,000 characters.
    """
    if isinstance(record, str):
        source = _source(record, shown)
        text, texts = plain_text(source), {"text": source}
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


def _read(index: int, record: Any, shown: RecordFields) -> Document:
    is_unread = isinstance(record, InputError)  # a reader's, in place of a record
    there = getattr(record, "cells", None) if is_unread else record
    document_id, category = id_of(there, shown), category_of(there, shown)
    if is_unread:
        return Document(index, document_id, category, None, str(record))
    try:
        text, texts = shown_text(record, shown)
    except ValueError as error:
        return Document(index, document_id, category, None, str(error))
    if not text.strip():
        return Document(index, document_id, category, None, "the text is empty")
    return Document(index, document_id, category, text, texts=texts)


def id_of(record: Any, shown: RecordFields) -> str | None:
    """The id of a record, if it has one."""
    value = record.get(shown.id) if isinstance(record, Mapping) else None
    if _is_missing(value):
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def category_of(record: Any, shown: RecordFields) -> str | None:
    """The category of a record, if it has one."""
    value = record.get(shown.category) if isinstance(record, Mapping) else None
    return None if value is None else str(value)


def _text_of_mapping(record: Mapping[Any, Any], shown: RecordFields) -> tuple[str, dict[str, str]]:
    keys: Iterable[Any] = shown.unnamed(record) if shown.text is None else shown.text
    if shown.text is not None and not any(key in record for key in shown.text):
        has = some_of(record) or "nothing"
        raise ValueError(f"the record has no {' or '.join(shown.text)}; it has {has}")
    values = [(key, record.get(key)) for key in keys]
    sources = {
        str(key): _source(value if isinstance(value, str) else _as_text(key, value), shown)
        for key, value in values
    }
    parts = {key: text for key, source in sources.items() if (text := plain_text(source).strip())}
    texts = {key: sources[key] for key in parts}
    if len(parts) == 1:
        return next(iter(parts.values())), texts
    return "\n".join(f"{key}: {text}" for key, text in parts.items()), texts


def _source(text: str, shown: RecordFields) -> str:
    return as_marked_up(text) if shown.html == "strip" else text


def _as_text(key: Any, value: Any) -> str:
    """Raises ValueError for a value that is neither scalar nor a list of scalars."""
    if isinstance(value, (list, tuple)) and all(map(_is_scalar, value)):
        return ", ".join(filter(None, (_as_text(key, item) for item in value)))
    if isinstance(value, bytes):
        try:
            return value.decode().strip()
        except UnicodeDecodeError:
            reason = f"column {clipped(repr(key))} holds bytes that are not valid UTF-8"
            raise ValueError(reason) from None
    if not _is_scalar(value):
        raise ValueError(
            f"{clipped(repr(key))} holds a {type(value).__name__}, which cannot be shown as text; "
            "name the keys to show with --text (text=)"
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


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a call, checked as far as this needs no model.

    schemas: by category; a single schema under "".
    options: see `Options`.
    """

    documents: Iterator[Document]
    schema: type[Any] | Mapping[str, type[Any]]
    schemas: Mapping[str, type[Any]]
    shown: RecordFields
    options: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        products: Iterable[Any],
        schema: type[Any] | Mapping[str, type[Any]],
        options: Mapping[str, Any],
    ) -> Inputs:
        """function: has the options, see `check_options`. Raises as `Extractor.stream` does."""
        check_options(function, options)
        schemas = dict(schema) if isinstance(schema, Mapping) else {"": schema}
        if not schemas:
            raise SchemaError("schemas", None, "no category is given")
        for declared in schemas.values():
            require_model(declared)
        shown = RecordFields.of_options(options)
        return cls(read_documents(products, shown), schema, schemas, shown, options)

    @property
    def settings(self) -> dict[str, Any]:
        """The options of `Extractor.compile`, examples excluded."""
        names = ("format", "template", "decoding")
        return {name: self.options[name] for name in names if name in self.options}
