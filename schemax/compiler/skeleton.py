"""The skeleton: keys and punctuation given, values blank, cut on token boundaries."""

from __future__ import annotations

from collections.abc import Sequence

from schemax.attributes import Attribute
from schemax.base.messages import warn
from schemax.compiler.list_slots import Rows, all_labels, check_sizes, written
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.errors import SchemaError
from schemax.formats import DocumentKey, OutputFormat, Path, Writable


def key_texts(
    attributes: Sequence[Attribute],
    output_format: OutputFormat,
    config: DecodingConfig,
    num_documents: int,
) -> list[list[str]]:
    """(J, N) texts of the key segments.

    Stacked documents share one output, so paths of their keys begin with the document's id ("1" to
    "J"). In `gapped` a segment begins where the value before it ended; in `branched` every segment
    stands alone, as if it were the first.
    """
    rows = []
    previous: Path | None = None
    for j in range(num_documents):
        stacked = config.documents == "stacked"
        head: Path = (DocumentKey(str(j + 1)),) if stacked else ()
        if not stacked:
            previous = None
        row = []
        for attribute in attributes:
            path = head + attribute.labels
            row.append(output_format.key(path, previous))
            previous = path if config.layout != "branched" else None
        rows.append(row)
    return rows


def check_names(schema: str, attributes: Sequence[Attribute], output_format: OutputFormat) -> None:
    """Raises SchemaError if two keys would look the same in this format, or are too many."""
    check_sizes(schema, attributes)
    try:
        output_format.check(list(all_labels(attributes)))
    except ValueError as error:
        raise SchemaError(schema, None, str(error)) from error


def check_boundaries(
    keys: Sequence[str],
    attributes: Sequence[Attribute],
    output_format: OutputFormat,
    codec: TextCodec,
) -> tuple[str, ...]:
    """Names of attributes whose key ends within a token of the filled text.

    The model then sees a cut that it has not seen in training: extraction works, quality may
    suffer. One warning names them all.
    """
    odd = []
    for key, attribute in zip(keys, attributes, strict=True):
        ids = codec.encode(key)
        for value in _typical_values(attribute):
            filled = codec.encode(key + output_format.escape(value) + output_format.delimiter)
            if filled[: len(ids)] != ids:
                odd.append(attribute.name)
                break
    if odd:
        warn(boundary_warning(output_format, odd))
    return tuple(odd)


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


def render_values(
    attributes: Sequence[Attribute],
    output_format: OutputFormat,
    values: Sequence[Writable | Rows],
    head: Path = (),
) -> str:
    """The whole output for a document, from opening to closing; `head` begins all paths."""
    parts = [output_format.opening()]
    previous: Path | None = None
    for attribute, value in zip(attributes, values, strict=True):
        for labels, literal in written(attribute, value):
            path = head + labels
            parts.append(output_format.key(path, previous))
            parts.append(output_format.escape(literal))
            previous = path
    assert previous is not None  # a schema without attributes does not compile
    parts.append(output_format.closing(previous))
    return "".join(parts)


def skeleton_text(
    attributes: Sequence[Attribute], output_format: OutputFormat, head: Path = ()
) -> str:
    """The output with blank values, for counting and showing; see `render_values`."""
    paths: list[Path] = [head + attribute.labels for attribute in attributes]
    keys = [
        output_format.key(path, previous)
        for path, previous in zip(paths, [None, *paths[:-1]], strict=True)
    ]
    return output_format.opening() + "".join(keys) + output_format.closing(paths[-1])
