"""The skeleton of an output: keys and punctuation, with slots for the values.

A list in two phases has a slot for its length and then slots for all items, after PaDeLLM-NER (Lu
et al. 2024, arXiv 2402.04838). "colors (count)" stands in the place of the list; "colors 1",
"colors 2", ... follow once the count is known. In a list of nested models every leaf of every item
has a slot, "items 1" > "price". Counts and items are attributes like any other, with the keys,
budgets and grammars of scalars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from schemax.attributes import Attribute
from schemax.attributes.field_type import LIST_KEYWORDS
from schemax.base.messages import warn
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.errors import SchemaError
from schemax.formats import DocumentKey, OutputFormat, Path, Writable

Lead = tuple[tuple[Path, str], ...]
"""The keys' paths, and literals as written, that stand before a key in its branch."""

Rows = Sequence[Sequence["Writable | Rows"]]
"""The items of a list of nested models, each as the values of its leaves."""

# The most items of a list in two phases, and the most keys of all items of all lists: keys multiply
# in lists within lists.
_MOST_ITEMS, _MOST_KEYS = 10_000, 500_000


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of the skeleton around a slot.

    declared: the attribute as declared.
    attribute: the attribute that the slot asks for: the count of a list in two phases, else the
        declared one.
    tails: the texts that may follow the value in the output, as far as tokens reach.
    items: the segments of the first item, for a list in two phases.
    """

    declared: Attribute
    attribute: Attribute
    tails: tuple[str, ...]
    items: tuple[Segment, ...] = ()


def segments_of(
    attributes: Sequence[Attribute], output_format: OutputFormat, config: DecodingConfig
) -> tuple[Segment, ...]:
    """(N,) segments of attributes side by side."""
    asked_for = list(map(slot_attribute, attributes))
    segments = []
    for place, (declared, attribute) in enumerate(zip(attributes, asked_for, strict=True)):
        tails = [output_format.delimiter, output_format.closing(attribute.labels)]
        if place + 1 < len(attributes):
            tails.append(output_format.key(asked_for[place + 1].labels, attribute.labels))
        if config.ends_with_line:
            tails = [tail for tail in tails if "\n" in tail]
        leaves = leaves_of_item(declared, 1) if declared.two_phase else ()
        items = segments_of(leaves, output_format, config)
        segments.append(Segment(declared, attribute, tuple(dict.fromkeys(tails)), items))
    return tuple(segments)


def inner_segments(segments: Sequence[Segment]) -> Iterator[Segment]:
    """Yields the segments of every list's first item."""
    for segment in segments:
        yield from segment.items
        yield from inner_segments(segment.items)


def as_decoded(
    schema: str,
    attributes: Sequence[Attribute],
    config: DecodingConfig,
    output_format: OutputFormat,
) -> tuple[Attribute, ...]:
    """The attributes as a decoding reads them: without branches, every list in one slot.

    Lists in two phases require branches: an item's key comes after the count, so it must depend on
    nothing but the tokens before all keys. Raises SchemaError for a list of nested models without
    branches, unless the model writes the whole output as JSON; and for a field that looks at fields
    that are not read before it.
    """
    if config.is_branched:
        return tuple(attributes)
    is_whole = (config.layout, config.documents) == ("autoregressive", "isolated")
    read: set[Path] = set()
    for attribute in attributes:
        # A model that writes the whole output sees what it wrote before.
        if attribute.after and not (
            config.layout == "autoregressive" and read >= {*attribute.after}
        ):
            raise SchemaError(
                schema,
                attribute.name,
                "after requires isolated documents in the layout 'branched' (the preset "
                "'isolated'; of a model that a server runs, with its tokenizer), not "
                f"{config.documents} ones in {config.layout!r}; or, where the model writes the "
                "whole output, a place behind the fields that it names",
            )
        read.add(attribute.path)
        if attribute.fields and not (is_whole and output_format.name == "json"):
            raise SchemaError(
                schema,
                attribute.name,
                "a list of nested models requires isolated documents, and the layout 'branched' "
                "(the preset 'isolated'), or 'autoregressive' in the format 'json'; not "
                f"{config.documents} ones in {config.layout!r} and {output_format.name!r}",
            )
    return tuple(map(_inline, attributes))


def _inline(attribute: Attribute) -> Attribute:
    return replace(attribute, two_phase=False, fields=tuple(map(_inline, attribute.fields)))


def slot_attribute(attribute: Attribute) -> Attribute:
    """The attribute that a slot asks for: the count of a list in two phases, else the attribute."""
    if not attribute.two_phase:
        return attribute
    fewest, most = attribute.num_items
    return replace(
        attribute,
        labels=(*attribute.labels[:-1], f"{attribute.label} (count)"),
        examples=(),
        kind="integer",
        choices=(),
        choice_values=(),
        is_list=False,
        k_max=None,
        omittable=attribute.may_be_null,
        constraints=(("minimum", fewest), ("maximum", most)),
        two_phase=False,
        fields=(),
        unit=None,
        strict=True,
    )


def leaves_of_item(attribute: Attribute, number: int | str) -> tuple[Attribute, ...]:
    """The attributes of an item: itself, or a model's leaves. number: from 1 on."""
    head = (*attribute.labels[:-1], f"{attribute.label} {number}")
    if attribute.fields:
        return tuple(
            replace(leaf, path=(*attribute.path, *leaf.path), labels=(*head, *leaf.labels))
            for leaf in attribute.fields
        )
    return (
        replace(
            attribute,
            labels=head,
            is_list=False,
            nullable=False,
            required=True,
            omittable=False,
            constraints=tuple(c for c in attribute.constraints if c[0] not in LIST_KEYWORDS),
            two_phase=False,
            after=(),
        ),
    )


# --- keys ----------------------------------------------------------------------------------------


def key_texts(
    segments: Sequence[Segment],
    output_format: OutputFormat,
    config: DecodingConfig,
) -> list[list[str]]:
    """(J, N) texts of the key segments; J is 1 for isolated documents.

    Stacked documents share one output, so paths of their keys begin with the document's id ("1" to
    "J"). In `gapped` a segment begins where the value before it ended; in `branched` every segment
    stands alone, as if it were the first.
    """
    heads: list[Path] = [()]
    if config.documents == "stacked":
        heads = [(DocumentKey(str(j + 1)),) for j in range(config.documents_per_prompt)]
    paths = [[(*head, *segment.attribute.labels) for segment in segments] for head in heads]
    if config.layout == "branched":
        return [[output_format.key(path, None) for path in row] for row in paths]
    befores = iter([None, *(path for row in paths for path in row)])
    return [[output_format.key(path, next(befores)) for path in row] for row in paths]


def key_behind(lead: Lead, labels: Path, output_format: OutputFormat) -> str:
    """The text of a branch's key, with the keys and values before it."""
    return _joined_keys((*lead, (labels, "")), output_format)


def _joined_keys(pairs: Iterable[tuple[Path, str]], output_format: OutputFormat) -> str:
    """Keys, by their paths, each with the literal behind it."""
    parts, previous = [], None
    for path, literal in pairs:
        parts += [output_format.key(path, previous), literal]
        previous = path
    return "".join(parts)


def all_labels(attributes: Sequence[Attribute]) -> Iterator[Path]:
    """The paths of all keys that an output may have, in order."""
    for attribute in attributes:
        yield slot_attribute(attribute).labels
        if attribute.two_phase:
            for number in range(1, attribute.num_items[1] + 1):
                yield from all_labels(leaves_of_item(attribute, number))


def check_names(schema: str, attributes: Sequence[Attribute], output_format: OutputFormat) -> None:
    """Raises SchemaError if two keys would look the same in this format, or are too many."""
    _check_sizes(schema, attributes)
    try:
        output_format.check(list(all_labels(attributes)))
    except ValueError as error:
        raise SchemaError(schema, None, str(error)) from error


def _check_sizes(schema: str, attributes: Sequence[Attribute]) -> int:
    """Counts the keys that an output may have.

    Raises SchemaError for lists in two phases that may have too many items or keys.
    """
    total = 0
    for attribute in attributes:
        if attribute.two_phase:
            most = attribute.num_items[1]
            keys = most * _check_sizes(schema, leaves_of_item(attribute, 1))
            if most > _MOST_ITEMS or keys > _MOST_KEYS:
                raise SchemaError(
                    schema,
                    attribute.name,
                    f"may have {most:,} items, and {keys:,} keys in all; a list in two phases has "
                    f"at most {_MOST_ITEMS:,} items and {_MOST_KEYS:,} keys, those of lists in "
                    "it included: declare a smaller max_length",
                )
            total += keys
        total += 1
    return total


def odd_boundaries(
    keys: Sequence[str],
    segments: Sequence[Segment],
    output_format: OutputFormat,
    codec: TextCodec,
) -> tuple[str, ...]:
    """Names of attributes whose key ends within a token of the filled text, as a warning says.

    The model then sees a cut that it has not seen in training: extraction works, quality may
    suffer. keys: (N,) of the segments; items are checked as well.
    """
    inner = list(inner_segments(segments))
    keys = [*keys, *(output_format.key(segment.attribute.labels, None) for segment in inner)]
    names = []
    for key, segment in zip(keys, [*segments, *inner], strict=True):
        ids = codec.encode(key)
        for value in _typical_values(segment.attribute):
            filled = codec.encode(key + output_format.escape(value) + output_format.delimiter)
            if filled[: len(ids)] != ids:
                names.append(segment.attribute.name)
                break
    if names:
        warn(boundary_warning(output_format, names))
    return tuple(names)


def boundary_warning(output_format: OutputFormat, names: Sequence[str]) -> str:
    """The warning about odd boundaries, which names the attributes."""
    return (
        f"in format {output_format.name!r} this tokenizer merges the end of the key with the "
        f"value for {', '.join(names)}; another format may suit it better"
    )


def _typical_values(attribute: Attribute) -> list[str | list[str] | None]:
    texts = [*(attribute.choices or attribute.examples)[:16], "Samsung", "5", "1.5 m", '"é"', "x"]
    if attribute.is_list:
        return [None, [], *([text] for text in texts)]
    return [None, *texts]


# --- whole outputs -------------------------------------------------------------------------------


def written_values(attribute: Attribute, value: Writable | Rows) -> Iterator[tuple[Path, Writable]]:
    """Yields a value as outputs hold it: the paths of keys, and the value behind each."""
    if not attribute.two_phase:
        yield attribute.labels, value  # type: ignore[misc]  # no rows
        return
    items: Sequence[object] = value or ()  # type: ignore[assignment]
    yield slot_attribute(attribute).labels, None if value is None else len(items)
    for number, item in enumerate(items, 1):
        leaves = leaves_of_item(attribute, number)
        for leaf, part in zip(leaves, item if attribute.fields else (item,), strict=True):  # type: ignore[call-overload]
            yield from written_values(leaf, part)


def render_values(
    attributes: Sequence[Attribute],
    output_format: OutputFormat,
    values: Sequence[Writable | Rows],
    head: Path = (),
) -> str:
    """The whole output for a document, from opening to closing; `head` begins all paths."""
    pairs = [
        (head + labels, output_format.escape(literal))
        for attribute, value in zip(attributes, values, strict=True)
        for labels, literal in written_values(attribute, value)
    ]
    return _whole(pairs, output_format)


def _whole(pairs: Sequence[tuple[Path, str]], output_format: OutputFormat) -> str:
    inside = _joined_keys(pairs, output_format)
    return output_format.opening() + inside + output_format.closing(pairs[-1][0])


def skeleton_text(
    attributes: Sequence[Attribute], output_format: OutputFormat, head: Path = ()
) -> str:
    """The output with blank values, for counting and showing; see `render_values`."""
    return _whole([(head + attribute.labels, "") for attribute in attributes], output_format)
