"""What anyone may have written, at random: either it is read, or an error of ours says why not.

The default run tries the same few inputs every time; `--hypothesis-profile random` tries many new
ones. What that finds is mended and stays here as an `@example`.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from conftest import Small
from hypothesis import example, given
from hypothesis import strategies as st

from schemax import AttrSchema, InputError, SchemaError, TemplateError
from schemax.compiler import TextCodec, compile_schema
from schemax.compiler import sandbox as bounds
from schemax.formats import OutputFormat, get_format
from schemax.io.readers import columns_of, read_file


@contextmanager
def refused_as(kind: type[Exception], is_clear: Callable[[str], Any]) -> Iterator[None]:
    """An error of this kind may be raised, if its message says where and what is wrong."""
    try:
        yield
        return
    except kind as error:
        message = str(error)
    assert is_clear(message), message


# --- readers ------------------------------------------------------------------------------------

TABLE = pyarrow.table(
    {
        "id": ["a", "b", None],
        "t": ["LG", "é\n", ""],
        "n": [1, 2, None],
        "day": pyarrow.array([0, 1, None], pyarrow.date32()),
        "all": [[{"x": 1.5}], [], None],
    }
)
LINES = b'{"id": "a", "t": "LG"}\n"Sony"\n\n{"id": 7, "t": ["x", null]}\n'
ROWS = b'id,t\na,"LG, ""new"""\nb,"two\nlines"\n'
ROUGH = st.lists(
    st.sampled_from([*(bytes([byte]) for byte in b'\n\r,;\t"\\{}[]:0 \x00\xff'), LINES, ROWS])
    | st.binary(max_size=20),
    max_size=12,
).map(b"".join)


@cache
def well_formed(suffix: str) -> bytes:
    """A small file that is read to its end."""
    name, _, compression = suffix.lstrip(".").partition(".")
    data = {"csv": ROWS, "tsv": ROWS.replace(b",", b"\t"), "jsonl": LINES}.get(name)
    if data is None:
        sink = io.BytesIO()
        if name == "parquet":
            pyarrow.parquet.write_table(TABLE, sink)
        else:
            new = pyarrow.ipc.new_stream if name == "stream" else pyarrow.ipc.new_file
            with new(sink, TABLE.schema) as writer:
                writer.write_table(TABLE)
        data = sink.getvalue()
    if compression == "arrow":
        return data
    if compression == "zst":
        return bytes(pyarrow.compress(data, "zstd", asbytes=True))
    return gzip.compress(data, mtime=0) if compression else data


@st.composite
def files(draw: st.DrawFn, suffix: str) -> bytes:
    """Anything; or a good file of which some pieces were replaced, or its end cut off."""
    if draw(st.booleans()):
        return draw(ROUGH)
    data = bytearray(well_formed(suffix))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(data[: draw(st.none() | st.integers(0, len(data)))])


@pytest.mark.parametrize(
    "suffix",
    [
        *(".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.gz", ".csv.zst", ".tsv.zst", ".jsonl.zst"),
        *(".parquet", ".arrow", ".stream.arrow"),
    ],
)
@given(data=st.data())
def test_any_file_is_read_or_refused(suffix: str, data: st.DataObject, tmp_path: Path) -> None:
    place = tmp_path / f"in{suffix}"
    place.write_bytes(data.draw(files(suffix)))
    for look in (columns_of, lambda name: list(read_file(name))):
        with refused_as(InputError, lambda message: place.name in message):
            found: Any = look(str(place))
            assert all(isinstance(one, (str, Mapping, InputError)) for one in found or ())


@pytest.mark.parametrize(("at", "said"), [(434, "more memory"), (295, "64 bits")])
def test_lengths_and_types_that_cannot_be_are_refused(at: int, said: str, tmp_path: Path) -> None:
    """Of a stream of Arrow whose head says so."""
    data = bytearray(well_formed(".stream.arrow"))
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    (tmp_path / "in.stream.arrow").write_bytes(data)
    with pytest.raises(InputError, match=said):
        list(read_file(str(tmp_path / "in.stream.arrow")))


# --- formats ------------------------------------------------------------------------------------

in_each_format = pytest.mark.parametrize("format", [get_format(n) for n in ("json", "yaml", "xml")])
PATHS = (("Brand",), ("Size", "Width"), ("Size", "Height"), ("Ports",), ("null",))
WRITTEN = [
    *("Brand", "brand", "Size", "Width", "Height", "Ports", "null", "true", "~", "1.5", "-", "|"),
    *('"', "'", "\\", "\\u", "{", "}", "[", "]", ",", ":", ": ", "\n", "  ", "\t", "#", "&", "*"),
    *("<", ">", "</", "/>", "<Brand>", "</Brand>", "<Size>", "</Size>", "<Width>", "&lt;", "&#x"),
    *("<![CDATA[", "]]>", "<!--", "-->", "```", "```json\n", "---\n", "...", "?", "!!int "),
]
OUTPUTS = st.lists(st.sampled_from(WRITTEN) | st.text(max_size=3), max_size=30).map("".join)


@in_each_format
@given(raw=OUTPUTS, is_list=st.booleans())
def test_any_slot_is_a_value_or_a_value_error(
    format: OutputFormat, raw: str, is_list: bool
) -> None:
    with suppress(ValueError):
        value = format.unescape(raw, is_list=is_list)
        assert format.unescape(format.escape(value), is_list=isinstance(value, list)) == value


@in_each_format
@given(text=OUTPUTS)
def test_any_output_is_parsed(format: OutputFormat, text: str) -> None:
    found = format.parse(text, PATHS)
    assert set(found) <= set(PATHS)
    for raw in found.values():
        with suppress(ValueError):
            format.unescape(raw)


@in_each_format
@given(data=st.data())
def test_of_a_damaged_output_what_is_found_is_read(
    format: OutputFormat, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.text(max_size=5), min_size=len(PATHS), max_size=len(PATHS)))
    whole, previous = "", None
    for path, value in zip(PATHS, values, strict=True):
        whole += format.key(path, previous) + format.escape(value)
        previous = path
    whole += format.closing(PATHS[-1])
    read = [format.unescape(raw) for raw in format.parse(whole, PATHS).values()]
    assert read == [format.unescape(format.escape(value)) for value in values]
    cut = data.draw(st.integers(0, len(whole)))
    for path, raw in format.parse(whole[:cut], PATHS).items():
        assert path in PATHS
        assert isinstance(raw, str)


# --- JSON Schema documents ----------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["a", "a b", "A", "class", "_x", "__init__", "model_config", "id", "1", "é", "json"]
)
NAMES_AS_FIELDS = {"a_b", "class_", "field_1", "x", "init", "model_config_", "json_"}
WORDS_OF_ALL = {
    **dict.fromkeys(("title", "description", "unit"), st.text(max_size=5)),
    **dict.fromkeys(("default", "const"), st.text(max_size=3) | st.integers() | st.none()),
    **dict.fromkeys(
        ("examples", "enum"), st.lists(st.text(max_size=3) | st.integers(), min_size=1)
    ),
    **dict.fromkeys(("nullable", "long"), st.booleans()),
    "k_max": st.integers(-1, 40),
}
WORDS_OF: dict[str, dict[str, Any]] = {
    "string": {
        **dict.fromkeys(("minLength", "maxLength"), st.integers(-1, 9) | st.integers()),
        "pattern": st.text("ab()[]{}|*+?.^$\\d9,(?=!<", max_size=8),
        "format": st.sampled_from(["date", "date-time", "uri", "time"]),
    },
    "number": dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        st.floats() | st.integers(),
    ),
    "array": {
        **dict.fromkeys(("minItems", "maxItems"), st.integers(-1, 9) | st.integers()),
        "uniqueItems": st.booleans(),
    },
    "object": {
        "required": st.lists(NAMES, max_size=3),
        "additionalProperties": st.booleans(),
    },
    "boolean": {},
}
WORDS_OF["integer"] = WORDS_OF["number"]
REFS = st.sampled_from(
    ["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "other.json", "#/%24defs/a"]
)


@st.composite
def nodes(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """A schema, as a rule of keywords that go together; now and then one has any value at all."""
    within = nodes(depth - 1) if depth else st.just({"type": "string"})
    kind = draw(st.sampled_from([*WORDS_OF, "reference", "alternatives"]))
    node: dict[str, Any] = {"type": kind}
    if kind == "array":
        node["items"] = draw(within)
    elif kind == "object":
        node["properties"] = draw(st.dictionaries(NAMES, within, min_size=1, max_size=3))
    elif kind == "reference":
        node = {"$ref": draw(REFS)}
    elif kind == "alternatives":
        word = draw(st.sampled_from(["anyOf", "oneOf", "allOf"]))
        node = {word: draw(st.lists(within, min_size=1, max_size=1 if word == "allOf" else 3))}
    words = {**WORDS_OF_ALL, **WORDS_OF.get(kind, {})}
    for word in draw(st.lists(st.sampled_from(sorted(words)), unique=True, max_size=2)):
        node[word] = draw(words[word])
    if draw(st.integers(0, 15)) == 7:
        node[draw(st.sampled_from([*node, *words, "items", "properties", "$ref"]))] = draw(JSON)
    return node


def is_no_text(value: Any) -> bool:
    return not isinstance(value, str)


DOCUMENTS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(NAMES, nodes(), min_size=1, max_size=4),
        "$defs": st.fixed_dictionaries({"a": nodes(), "b": nodes()}),
    },
    optional={
        "required": st.lists(NAMES, max_size=3),
        **dict.fromkeys(("title", "description", "category"), st.text(max_size=5)),
        "format": st.sampled_from(["json", "yaml", "xml"]) | JSON.filter(is_no_text),
        "template": JSON.filter(is_no_text),
    },
)


def referring(**node: Any) -> Any:
    """A document in which something of another name is looked for, with a node in its way."""
    definitions = {"$defs": {"b": node}}
    return {"type": "object", "properties": {"a": {"$ref": "other.json"}}, **definitions}


# Where in a template, or what it lacks; and what is wrong there.
OF_TEMPLATES = re.compile(
    r"template, line \d+: \S"
    r"|template (cannot be (used|rendered)|failed: \w+): \S"
    r"|a template must show (the text of every document|all documents)"
)


def says_where(message: str, document: Any) -> bool:
    """Names the class, or the path of a field that the document has; and what is wrong there."""
    where, _, what = message.partition(": ")
    if not isinstance(document, dict):
        return where == "JSON Schema" and bool(what.strip())
    name, *path = where.split(".")
    named = {*NAMES_AS_FIELDS, *keys_of(document)}
    return name.isidentifier() and bool(what.strip()) and (not path or bool(named & {*path}))


def keys_of(value: Any) -> Iterator[str]:
    """Keys of all objects in a value."""
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from keys_of(inner)


@example(document=referring(anyOf="0"))
@example(document=referring(anyOf=None))
@example(document=referring(properties=None))
@example(document=referring(items=None))
@example(
    document={"type": "object", "properties": {"a": {"$ref": "#", "const": "", "default": ""}}}
)
@given(document=DOCUMENTS | nodes() | JSON)
def test_any_json_schema_is_a_class_or_a_schema_error(document: Any) -> None:
    for given_as in (document, json.dumps(document)):
        with refused_as(SchemaError, lambda message: says_where(message, document)):
            AttrSchema.from_json_schema(given_as).model_json_schema()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::schemax.errors.SchemaWarning")
@example(document={"type": "object", "properties": {"a": {"type": "string"}}, "format": 5})
@example(
    document={
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"$ref": "#"}, "maxItems": -1}},
    }
)
@example(
    document={"type": "object", "properties": {"a": {"type": "number", "exclusiveMaximum": -0.0}}}
)
@given(document=DOCUMENTS)
def test_any_json_schema_compiles_or_is_refused(document: Any, codec: TextCodec) -> None:
    with (
        refused_as(TemplateError, OF_TEMPLATES.match),
        refused_as(SchemaError, lambda message: says_where(message, document)),
    ):
        compile_schema(AttrSchema.from_json_schema(document), codec)


# --- templates ----------------------------------------------------------------------------------

SHOWN = "{% for document in documents %}{{ document.text }}{% endfor %}"
WORDS = [
    *("{{ ", " }}", "{% ", " %}", "{# ", " #}", "{%- ", " -%}", "\n", "x", "1", "'a'", "-"),
    *("if ", "else", "endif", "for ", " in ", "endfor", "set x = ", "macro f()", "endmacro", "f()"),
    *("documents", "document", "attributes", "attribute", "category", "namespace()", "self"),
    *(".text", ".name", ".id", ".__class__", "['x']", "|", "|join", "|tojson", "|length", "|list"),
    *("|replace('a', 'b')", "|format(1)", "|map('upper')", "|sort", "|attr('x')", "|batch(2)"),
    *("range(9)", "lipsum()", "dict(a=1)", "cycler(1)", "joiner()", "[", "]", "(", ")", "{", "}"),
    *(" + ", " * ", " ** ", " % ", " ~ ", " // ", " and ", " is defined", "'%s'", "'{}'.format(1)"),
    *("include 'x'", "extends 'x'", "import 'x' as y", "call f()", "filter upper", "block b"),
    *(
        "raw",
        "endraw",
        "loop",
        "99999",
        "endblock",
        "endfilter",
        "endcall",
        "with",
        "endwith",
        "break",
        "continue",
        "do ",
    ),
    *("raise_exception('x')", "strftime_now('%Y')", "generation", "endgeneration", SHOWN, "\0"),
]
TEMPLATES = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=20).map("".join)
EXPRESSIONS = st.lists(st.sampled_from(WORDS), max_size=6).map(
    lambda words: "{{ " + "".join(words) + " }}"
)


@given(pieces=st.lists(TEMPLATES | EXPRESSIONS, max_size=4))
def test_any_template_is_a_prompt_or_a_template_error(
    pieces: Sequence[str], codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_SECONDS", 0.5)
    for template in ("".join(pieces) + SHOWN, SHOWN.join(pieces)):
        with refused_as(TemplateError, OF_TEMPLATES.match):
            compile_schema(Small, codec, template=f"{template}\n")
