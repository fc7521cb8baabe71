"""Discovery: declares the attributes of a category from samples, as in the paper's figure 10.

The model only names attributes. Their values, and hence their types, come from reading the samples,
so that the declaration holds nothing that no document states:
samples -> names (listed by a model, and in lines `name: value`) -> the values of the names in the
samples -> types -> a JSON Schema document, and its coverage of the samples.
"""

from __future__ import annotations

import json
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from json_repair import repair_json
from pydantic import Field, create_model

from schemax.attributes import attr
from schemax.attributes.json_document import class_name
from schemax.attributes.ready_made import words_of
from schemax.base.messages import clipped, counted, some_of
from schemax.base.resources import resource_dir
from schemax.errors import InputError, SchemaError
from schemax.extraction.documents import Document, RecordFields, read_documents
from schemax.extraction.extractor import Extractor, loaded
from schemax.extraction.schema import AttrSchema
from schemax.reading.booleans import WORDS
from schemax.results import Extraction
from schemax.training.property_types import PropertyType, declared

TEMPLATE = resource_dir("templates") / "discovery" / "attributes.jinja"

# Characters of a sample that a list of names is made from, and samples per list.
_CHARACTERS, _TOGETHER = 1_500, 5
# The most documents that samples are drawn from, which bounds the time.
_MOST_READ = 10_000
_TOKENS_PER_NAME = 8
# The least share of samples that state an attribute.
_LEAST_STATED = 0.05
# A discovery is in doubt with fewer attributes, or if most have values in a smaller share.
_FEW, _OFTEN = 3, 0.25
_REMEDY = "name a larger model, or give more and longer samples"
# Two attributes are the same if they agree in all samples, at least this many.
_SAME = 3


@dataclass(frozen=True, slots=True)
class FoundAttribute:
    """An attribute that samples state, with its frequency.

    name: of the property.
    lists: the number of the model's lists with the name.
    lines: the number of samples with a line `name: value`.
    coverage: the share of samples in which the declaration reads a value.
    unit: of a number, or None.
    """

    name: str
    title: str
    kind: PropertyType
    unit: str | None
    lists: int
    lines: int
    coverage: float
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Discovery:
    """A declaration made from samples.

    schema: the declaration.
    document: the declaration as JSON Schema.
    samples, lists: the numbers of samples and of the model's lists.
    attributes: in order.
    left_out: name -> reason.
    doubt: the reasons not to rely on the declaration, with a remedy, or None.
    """

    schema: type[AttrSchema]
    document: Mapping[str, Any]
    samples: int
    lists: int
    attributes: tuple[FoundAttribute, ...]
    left_out: Mapping[str, str]
    doubt: str | None = None

    def report(self) -> dict[str, Any]:
        """Returns the discovery without the declaration, as JSON."""
        rows = list(map(asdict, self.attributes))
        head = {"category": self.document["category"], "samples": self.samples}
        return head | {"lists": self.lists, "attributes": rows, "left_out": dict(self.left_out)}


def discover(
    products: Iterable[Any],
    category: str,
    *,
    model: str | Path | None = None,
    extractor: Extractor | None = None,
    max_attributes: int = 16,
    samples: int = 40,
    text: str | Sequence[str] | None = None,
) -> type[AttrSchema]:
    """Declares the attributes that documents of a category state, from samples of them.

    products: texts, or mappings as `extract` takes them.
    samples: how many of the first 10,000 are drawn and read; every call draws the same samples.
    category: the subject of the documents, in words.
    model: a folder or Hub id.
    extractor: a loaded one. Without either, `Extractor.default()`, whose embedded model is poor at
        naming attributes.
    text: the keys of a record that the model is shown; None shows all but id and category.

    Warns (UserWarning) if few attributes are found, or lists of names hardly agree; the usual cause
    is a small model. `.json_schema()` of the result is a document to review, edit and keep.

    Raises InputError if no document can be read, SchemaError if no attribute is found, ModelError,
    and ValueError for settings that exclude each other.
    """
    if model is not None and extractor is not None:
        raise ValueError("give a model or an extractor, not both")
    if extractor is None:
        extractor = Extractor.default() if model is None else loaded(str(model))
    shown = RecordFields.of(text)
    discovery = discovered(
        products, category, extractor, max_attributes=max_attributes, samples=samples, shown=shown
    )
    if discovery.doubt is not None:
        warnings.warn(f"{category}: {discovery.doubt}", UserWarning, stacklevel=2)
    return discovery.schema


def discovered(
    products: Iterable[Any],
    category: str,
    extractor: Extractor,
    *,
    max_attributes: int = 16,
    samples: int = 40,
    shown: RecordFields | None = None,
) -> Discovery:
    """Returns the result of `discover` with its evidence."""
    for name, number in (("max_attributes", max_attributes), ("samples", samples)):
        if not 1 <= number <= 1000:
            raise ValueError(f"{name} must be from 1 to 1000, not {number!r}")
    if not (category := category.strip()):
        raise ValueError("category is empty; say in words what the documents are about")
    documents = _drawn_documents(read_documents(products, shown or RecordFields()), samples)
    # Keys of records name columns, not attributes to read.
    bodies = ["\n".join(document.texts.values()) for document in documents]
    lists, problem = _lists(extractor, category, bodies, max_attributes)
    named = candidates(lists, bodies)[: 2 * max_attributes]
    where = class_name(category)
    if not named:
        listed = some_of(name for names in lists for name in names) or problem or "nothing"
        raise _no_attribute(where, f"the model listed {clipped(listed)}")
    texts = [document.text or "" for document in documents]
    values = _values(extractor, category, named, texts)
    kept, left_out = _kept_names(named, values, len(texts), max_attributes)
    if not kept:
        tried = some_of(candidate.title for candidate in named)
        raise _no_attribute(where, f"the samples state none of the names that were found ({tried})")
    properties = {_property(named[index].title): index for index in kept}
    types = {
        name: declared(named[index].title, list(values[index].values()))
        for name, index in properties.items()
    }
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": category[:1].upper() + category[1:],
        "category": category,
        "type": "object",
        "properties": {name: node for name, (_, node) in types.items()},
    }
    schema = AttrSchema.from_json_schema(document)
    stated = _coverage(extractor, schema, texts)
    attributes = tuple(
        FoundAttribute(
            name,
            named[index].title,
            types[name][0],
            types[name][1].get("unit"),
            named[index].lists,
            len(named[index].documents),
            stated[at] / len(texts),
            tuple(dict.fromkeys(values[index].values()))[:5],
        )
        for at, (name, index) in enumerate(properties.items())
    )
    doubt = _doubt(attributes, len(lists), max_attributes)
    return Discovery(schema, document, len(texts), len(lists), attributes, left_out, doubt)


def _drawn_documents(documents: Iterator[Document], samples: int) -> list[Document]:
    """Draws readable documents, in order; equal documents give equal samples."""
    chosen: list[tuple[int, Document]] = []
    random_number = random.Random(0)
    problem, read = "there are none", 0
    for index, document in enumerate(documents):
        if index == _MOST_READ:
            break
        if document.text is None:
            problem = document.problem or problem
            continue
        read += 1
        if len(chosen) < samples:
            chosen.append((index, document))
        elif (at := random_number.randrange(read)) < samples:
            chosen[at] = index, document
    if not chosen:
        raise InputError(f"no document can be read to discover attributes in: {problem}")
    return [document for _, document in sorted(chosen, key=lambda pair: pair[0])]


def _lists(
    extractor: Extractor, category: str, bodies: Sequence[str], most: int
) -> tuple[list[list[str]], str | None]:
    """Returns lists of names, each from a few documents, and the problem of a failed list."""
    names = attr(
        f"the names, {most} at most",
        default_factory=list,
        max_length=most,
        k_max=_TOKENS_PER_NAME * most,
    )
    wanted = _schema(category, {"attributes": (list[str], names)})
    beginnings = [body[:_CHARACTERS] for body in bodies]
    texts = [
        "\n\n".join(beginnings[at : at + _TOGETHER]) for at in range(0, len(bodies), _TOGETHER)
    ]
    decoding = replace(extractor.defaults.decoding, min_probability=0.0, max_retries=0)
    settings: Any = {"format": "json", "template": TEMPLATE, "decoding": decoding}
    lists, problem = [], None
    for item in extractor.stream(texts, wanted, **settings):
        if item.value is None:
            problem = "; ".join(error.message for error in item.errors)
        else:
            lists.append(_listed_names(item)[:most])
    return lists, problem


def _listed_names(item: Extraction[Any]) -> list[str]:
    """Returns the complete names of a list."""
    if names := getattr(item.value, "attributes", None):
        return list(names)
    result = item.fields["attributes"]
    repaired: Any = repair_json(result.raw or "", return_objects=True)
    names = (
        [name for name in repaired if isinstance(name, str)] if isinstance(repaired, list) else []
    )
    return names[:-1] if result.finish_reason == "length" else names


def _values(
    extractor: Extractor, category: str, named: Sequence[AttributeName], texts: Sequence[str]
) -> list[dict[int, str]]:
    """Returns document -> stated value for every candidate, from lines or as the model reads it."""
    fields = {
        f"a{index}": (str | None, Field(default=None, title=candidate.title))
        for index, candidate in enumerate(named)
    }
    wanted = _schema(category, fields)
    values = [dict(candidate.documents) for candidate in named]
    for item in extractor.stream(texts, wanted):
        for index in range(len(named) if item.value is not None else 0):
            result = item.fields[f"a{index}"]
            value = result.value
            # A value that is absent from the document is a hallucination.
            if value and (result.grounded or value.casefold() in WORDS):
                values[index].setdefault(item.index, value)
    return values


def _kept_names(
    named: Sequence[AttributeName], values: Sequence[Mapping[int, str]], samples: int, most: int
) -> tuple[list[int], dict[str, str]]:
    """Returns the places of the names that become attributes; name -> reason for other names."""
    kept: list[int] = []
    left_out: dict[str, str] = {}
    for index, candidate in enumerate(named):
        stated = values[index]
        twin = next((earlier for earlier in kept if _are_same(values[earlier], stated)), None)
        if len(stated) < max(1.0, _LEAST_STATED * samples):
            left_out[candidate.title] = f"{len(stated)} of {samples} samples state it"
        elif twin is not None:
            left_out[candidate.title] = f"has always the values of {named[twin].title}"
        elif len(kept) == most:
            left_out[candidate.title] = f"{most} names are more frequent"
        else:
            kept.append(index)
    return kept, left_out


def _are_same(first: Mapping[int, str], second: Mapping[int, str]) -> bool:
    return len(second) >= _SAME and all(
        first.get(index) == value for index, value in second.items()
    )


def _coverage(extractor: Extractor, schema: type[AttrSchema], texts: Sequence[str]) -> list[int]:
    """Counts the samples with a value for each attribute, in the order of the fields."""
    names = list(schema.model_fields)
    counts = dict.fromkeys(names, 0)
    for item in extractor.stream(texts, schema):
        for name in names if item.value is not None else ():
            counts[name] += getattr(item.value, name) not in (None, [])
    return list(counts.values())


def _doubt(attributes: Sequence[FoundAttribute], lists: int, most: int) -> str | None:
    count = len(attributes)
    agreed = sum(max(item.lists, item.lines) > 1 for item in attributes)
    stated = sum(item.coverage >= _OFTEN for item in attributes)
    reasons = []
    if count < min(_FEW, most):
        reasons.append("which are few")
    if lists > 1 and 2 * agreed < count:
        reasons.append(f"{count - agreed} named by one list of {lists} alone")
    if 2 * stated < count:
        reasons.append(f"{count - stated} with values in less than {_OFTEN:.0%} of the samples")
    text = f"do not rely on what was found: {counted(count, 'attribute')}, {', '.join(reasons)}"
    return f"{text}; {_REMEDY}" if reasons else None


def _schema(category: str, fields: Mapping[str, Any]) -> Any:
    definition: Any = {"__base__": AttrSchema, "__cls_kwargs__": {"category": category}, **fields}
    return create_model(class_name(category), **definition)


def _property(title: str) -> str:
    return "_".join("".join(c if c.isalnum() else " " for c in title.casefold()).split())


def _no_attribute(where: str, why: str) -> SchemaError:
    return SchemaError(where, None, f"no attribute was found: {why}; {_REMEDY}")


def as_json(document: Mapping[str, Any]) -> str:
    """Formats a document with one property per line, for people to read and edit."""
    outer = {key: value for key, value in document.items() if key != "properties"}
    head = json.dumps(outer, ensure_ascii=False, indent=2).removesuffix("\n}")
    lines = ",\n".join(
        f"    {json.dumps(key, ensure_ascii=False)}: {json.dumps(node, ensure_ascii=False)}"
        for key, node in document["properties"].items()
    )
    return f'{head},\n  "properties": {{\n{lines}\n  }}\n}}\n'


_MOST_WORDS, _LONGEST = 4, 40
_LONGEST_VALUE = 100
_WORD = re.compile(r"[^\W\d_]{2,}")
# `Weight: 2 kg`: a line, an item of a list, or a part between bars.
_LINE = re.compile(
    rf"[ \t]*[-*•·]?[ \t]*([^\W\d_][^:=\n|]{{0,{_LONGEST}}}?)[ \t]*[:=][ \t]+"
    rf"(\S[^\n|]{{0,{_LONGEST_VALUE}}})"
)
# Names without information about the product, as `words_of` writes them.
_NOTHING = [words_of(name) for name in ("price", "cost", "name value", "note", "attribute")]
_SPELLINGS = {"colour": "color", "fibre": "fiber", "flavour": "flavor", "metre": "meter"}
_EMPTY = frozenset({"product", "item", "the"})


@dataclass(slots=True)
class AttributeName:
    """A name that may become an attribute.

    spellings: counts.
    lists: the number of the model's lists with the name.
    documents: index of a document with a line `name: value` -> value.
    """

    spellings: Counter[str] = field(default_factory=Counter)
    lists: int = 0
    documents: dict[int, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The most common spelling."""
        text = self.spellings.most_common(1)[0][0]
        return text[:1].upper() + text[1:]


def candidates(lists: Iterable[Sequence[str]], texts: Sequence[str]) -> list[AttributeName]:
    """Returns the names in the model's lists and in lines of the texts, most frequent first."""
    by_key: dict[tuple[str, ...], AttributeName] = {}
    total = 0
    for names in lists:
        total += 1
        of_list: dict[tuple[str, ...], str] = {}
        for name in names:
            if (key := _key(name)) is not None:
                of_list.setdefault(key, _plain(name))
        for key, name in of_list.items():
            candidate = by_key.setdefault(key, AttributeName())
            candidate.spellings[name] += 1
            candidate.lists += 1
    lines = _stated_in_lines(texts)
    for key, stated in lines.items():
        if key in by_key or len(stated) > 1:  # a single line is not enough
            candidate = by_key.setdefault(key, AttributeName())
            candidate.spellings.update(name for name, _ in stated.values())
            candidate.documents = {index: value for index, (_, value) in stated.items()}
    shares = {
        id(item): item.lists / max(1, total) + len(item.documents) / max(1, len(texts))
        for item in by_key.values()
    }
    return sorted(by_key.values(), key=lambda item: -shares[id(item)])


def _stated_in_lines(texts: Sequence[str]) -> dict[tuple[str, ...], dict[int, tuple[str, str]]]:
    """Returns key of a name -> document -> (name, value), from lines `name: value`."""
    lines: dict[tuple[str, ...], dict[int, tuple[str, str]]] = {}
    for index, text in enumerate(texts):
        for part in re.split(r"[\n|]", text):
            match = _LINE.fullmatch(part.rstrip())
            if match and (key := _key(match[1])) is not None:
                lines.setdefault(key, {}).setdefault(index, (_plain(match[1]), match[2]))
    return lines


def _key(name: str) -> tuple[str, ...] | None:
    """Returns a key, equal for synonyms; None if the text is not a name."""
    name = _plain(name)
    if len(name) > _LONGEST or not _WORD.search(name) or len(name.split()) > _MOST_WORDS:
        return None
    words = words_of(" ".join(_SPELLINGS.get(word, word) for word in name.casefold().split()))
    bare = tuple(word for word in words if word not in _EMPTY) or words
    return None if not bare or bare in _NOTHING else bare


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[\"“”<>{}\[\]]|[:.;,]+$", " ", name).replace("_", " ").split())
