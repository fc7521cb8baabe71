"""Output formats: what is written reads back, everywhere and by other people's parsers."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from lxml import etree
from ruamel.yaml import YAML
from seams import forget_formats

from schemax.formats import (
    NEWLINE,
    BaseFormat,
    DocumentKey,
    OutputFormat,
    Path,
    StopRule,
    Value,
    Writable,
    format_names,
    get_format,
    register_format,
    stop_at,
)
from schemax.formats.base import clean, split_at_stop, transitions
from schemax.formats.xml_format import tag
from schemax.formats.yaml_format import is_plain

BUILT_IN = ("json", "yaml", "xml")
in_each_format = pytest.mark.parametrize("format", [get_format(name) for name in BUILT_IN], ids=str)

# Text that is likely to break a format, and any other text.
NASTY = [
    *(
        "",
        " ",
        "null",
        "Null",
        "~",
        "true",
        "no",
        "5",
        "-5",
        "1.0",
        "1e3",
        "0x1F",
        "0o17",
        ".5",
    ),
    *(
        "1_000",
        "12:30",
        "2024-01-31",
        "2024-01-31 10:00:00",
        ".inf",
        "nan",
        "=",
        "<<",
        "-",
        "--",
    ),
    *(
        "---",
        "...",
        "- a",
        "-a",
        "a:",
        "a: b",
        "a:b",
        ":a",
        "?a",
        "? a",
        "a #b",
        "#a",
        "a# b",
    ),
    *(
        "[x",
        "[a, b]",
        "{a: b}",
        "a, b",
        "a]",
        "&a",
        "*a",
        "!a",
        "!!str 5",
        "|",
        "| a",
        ">",
        "a | b",
    ),
    *(
        "'",
        "''",
        "'a'",
        '"',
        '"a"',
        '5" x 7"',
        "men's",
        "%a",
        "@a",
        "`a",
        "\\",
        "\\n",
        'a\\"',
        "\\u",
    ),
    *(
        "a\nb",
        "a\r\nb",
        "\n",
        "\t",
        "a\tb",
        " a",
        "a ",
        "\xa0a",
        "a\x85b",
        "a\u2028b",
        "\ufeffa",
    ),
    *(
        "\0",
        "\x1b",
        "\x7f",
        "\ufffe",
        "\uffff",
        "\U0001f600",
        "e\u0301",
        "\u202eabc",
        "שלום",
    ),
    *(
        "</",
        "<",
        "a</b>",
        "</result>",
        "&amp;",
        "&#110;ull",
        "&lt",
        "AT&T",
        "]]>",
        "<![CDATA[]]>",
    ),
    *('",\n', '"}', "}", ",", "\n\n", "```", "<|im_end|>", "{{ 7*7 }}"),
]
texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(),
    st.lists(st.sampled_from([*NASTY, " ", "a", "b"]), max_size=4).map("".join),
    st.text(alphabet="a -:#,[]{}'\"\\|&<>/\n0.~?!*", max_size=8),
)
values = st.one_of(st.none(), texts, st.lists(st.one_of(st.none(), texts), max_size=4))


def is_list(value: Any) -> bool:
    return isinstance(value, list)


def render(format: OutputFormat, filled: Sequence[tuple[Path, Any]]) -> str:
    format.check([path for path, _ in filled])
    parts = [format.opening()]
    previous = None
    for path, value in filled:
        parts += [format.key(path, previous), format.escape(value)]
        previous = path
    assert previous is not None
    return "".join([*parts, format.closing(previous)])


def load_yaml(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


# --- values -------------------------------------------------------------------------------------


@in_each_format
@given(value=values)
def test_what_was_escaped_reads_back(format: OutputFormat, value: Value) -> None:
    literal = format.escape(value)
    assert literal.startswith(" ")
    assert format.unescape(literal, is_list=is_list(value)) == value


@in_each_format
@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_nasty_text_reads_back(format: OutputFormat, text: str) -> None:
    assert format.unescape(format.escape(text)) == text
    for items in ([text], [text, text], [None, text], [text, None]):
        assert format.unescape(format.escape(items), is_list=True) == items


@in_each_format
@pytest.mark.parametrize("items", [[], [""], [None], ["null"], ["", ""], [None, None], ["|", " "]])
def test_short_lists_are_told_apart(format: OutputFormat, items: list[str | None]) -> None:
    assert format.unescape(format.escape(items), is_list=True) == items
    assert format.unescape(format.escape(None), is_list=True) is None


@in_each_format
def test_a_single_value_is_a_list_of_one_if_a_list_is_wanted(
    format: OutputFormat,
) -> None:
    assert format.unescape(format.escape("a, b"), is_list=True) == ["a, b"]


@in_each_format
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-(10**30), "-1" + "0" * 30),
        (1.5, "1.5"),
        (1e-07, "1e-07"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+5"), "1E+5"),
        (Decimal("NaN"), "NaN"),
        (date(2024, 1, 31), "2024-01-31"),
        (datetime(2024, 1, 31, 10, 30), "2024-01-31T10:30:00"),
    ],
)
def test_typed_values_read_back_as_their_text(
    format: OutputFormat, value: Writable, text: str
) -> None:
    assert format.unescape(format.escape(value)) == text
    assert format.unescape(format.escape([value, None]), is_list=True) == [text, None]  # type: ignore[list-item]


@in_each_format
def test_lone_surrogates_become_replacement_characters(format: OutputFormat) -> None:
    text = "a\ud83db\ude00\ud83d\ude00\ud83d"
    literal = format.escape(text)
    assert literal.encode()
    assert format.unescape(literal) == "a\ufffdb\ufffd\U0001f600\ufffd" == clean(text)


@in_each_format
def test_what_is_no_value_cannot_be_written(format: OutputFormat) -> None:
    with pytest.raises(TypeError, match=r"not \{\}"):
        format.escape({})  # type: ignore[arg-type]


@in_each_format
@pytest.mark.parametrize("raw", ["", " ", "\t", " null", "null"])
def test_nothing_written_is_none(format: OutputFormat, raw: str) -> None:
    assert format.unescape(raw) is None
    assert format.unescape(raw, is_list=True) is None


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (" 5,\n", "5"),
        (" 1.50\n", "1.50"),
        (" true", "true"),
        ("false ", "false"),
        ("null,", None),
        (' "null"', "null"),
        (",", None),
        ('"a",', "a"),
        ("\n", None),
        (" None\n", None),
        (" Acme\n", "Acme"),
        (" 'Acme'\n", "Acme"),
        ('"a\tb\nc"', "a\tb\nc"),
        (r'"5\'10\""', "5'10\""),
        (r'"C:\dir"', r"C:\dir"),
        (r'"\u00e9\ud83d\ude00\ud83d"', "é\U0001f600\ufffd"),
        (r'"\u12"', r"\u12"),
        (
            " [1, 2.50, true, null, 'b, c', \"d\",]",
            ["1", "2.50", "true", None, "b, c", "d"],
        ),
        ("[\n  a,\n  b\n]", ["a", "b"]),
        ("[]", []),
    ],
)
def test_json_literals(raw: str, value: Value) -> None:
    assert get_format("json").unescape(raw) == value


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (" Acme TV # a comment", "Acme TV"),
        (" # a comment", None),
        (" C#", "C#"),
        (" a: b", "a: b"),
        (" ~", None),
        (" NULL", None),
        (" Null # why", None),
        (" 1.50\r\n", "1.50"),
        (" true", "true"),
        (" 'it''s'", "it's"),
        (' "a" # b', "a"),
        (' "Acme" TV', '"Acme" TV'),
        (r' "\x41\u0042\U00000043\0\e\_\N"', "ABC\0\x1b\xa0\x85"),
        (" [NEW] Acme TV", "[NEW] Acme TV"),
        (" [a, 'b, c', \"d\", 5, ~, ] # e", ["a", "b, c", "d", "5", None]),
        (" [men's, women's]", ["men's", "women's"]),
        (" @home", "@home"),
        (" - a", "- a"),
    ],
)
def test_yaml_literals(raw: str, value: Value) -> None:
    assert get_format("yaml").unescape(raw) == value


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (" Acme &amp; Sons", "Acme & Sons"),
        (" Acme</brand>", "Acme"),
        (" AT&T", "AT&T"),
        (" &lt;&gt;&quot;&apos;&amp;&#65;&#x42;&#X43;", "<>\"'&ABC"),
        (" &euro; &#; &amp", "&euro; &#; &amp"),
        ("&#0;", "\0"),
        ("&#xD83D;&#1114112;&#xFFFFFF;", "\ufffd\ufffd\ufffd"),
        ("\n  a\n  ", "a"),
        ("&#32;a", " a"),
        ("<![CDATA[a &amp; b]]>", "a &amp; b"),
        (" a < b", "a < b"),
        ("&#110;ull", "null"),
        ("a | b", "a | b"),
    ],
)
def test_xml_literals(raw: str, value: Value) -> None:
    assert get_format("xml").unescape(raw) == value


def test_xml_lists() -> None:
    xml = get_format("xml")
    assert xml.escape(["a|b", "c"]) == " a&#124;b | c"
    assert xml.unescape("a|b |  | c", is_list=True) == ["a", "b", "c"]
    assert xml.unescape(" |", is_list=True) == []


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        ("json", ' "Acme', "not closed"),
        ("json", ' "Acme\\"', "not closed"),
        ("json", ' ["a", "b', "not closed"),
        ("json", ' ["a"', "not closed"),
        ("json", ' "55" TV"', "behind the string"),
        ("json", ' "a" and more', "behind the string"),
        ("json", ' ["a"], "b"', "one list"),
        ("json", " ['a', \"b\" c]", "single values"),
        ("json", " [[1], 2]", "single values"),
        ("json", ' {"a": 1}', "object"),
        ("json", ' [{"a": 1}]', "object"),
        ("yaml", ' "Acme', "not closed"),
        ("yaml", " 'Acme", "not closed"),
        ("yaml", " [a, b", "not closed"),
        ("yaml", " {a: b}", "mapping"),
        ("yaml", " |", "block"),
        ("yaml", " >-\n  a", "block"),
        ("xml", " Acme <b>TV</b>", "markup"),
        ("xml", "<item>a</item> and <item>b</item>", "markup"),
        ("xml", " a</x>b</y>", "markup"),
    ],
)
def test_broken_literals_say_why(name: str, raw: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        get_format(name).unescape(raw)


@in_each_format
@given(raw=texts, list_wanted=st.booleans())
def test_any_raw_text_is_a_value_or_a_value_error(
    format: OutputFormat, raw: str, list_wanted: bool
) -> None:
    try:
        value = format.unescape(raw, is_list=list_wanted)
    except ValueError:
        return
    assert value is None or isinstance(value, (str, list))
    assert not list_wanted or not isinstance(value, str)
    assert format.unescape(format.escape(value), is_list=is_list(value)) == value


# --- YAML's plain scalars against a parser ------------------------------------------------------


@given(text=texts)
@example("a:\u2028")
@example("1:20:30.5")
@example("+.5e-3")
def test_plain_scalars_are_the_same_text_to_a_yaml_parser(text: str) -> None:
    yaml = get_format("yaml")
    assume(is_plain(clean(text)))
    assert yaml.escape(text) == f" {text}"
    assert load_yaml(f"key:{yaml.escape(text)}\n") == {"key": text}
    assert load_yaml(f"key:{yaml.escape([text, text])}\n") == {"key": [text, text]}
    assert load_yaml(f"{text}: 5\n") == {text: 5}


@pytest.mark.parametrize(
    "text",
    [
        "Acme",
        "5 cm",
        "-5 °C",
        "32.5 ft",
        "yes",
        "men's",
        "a:b",
        "C#",
        "1,5",
        "20%",
        "黒",
    ],
)
def test_ordinary_text_is_plain(text: str) -> None:
    assert get_format("yaml").escape(text) == f" {text}"


# --- stop rules ---------------------------------------------------------------------------------


def split_over_tokens(rule: StopRule, tokens: Sequence[bytes]) -> tuple[bytes, bool]:
    """As split_at_stop, but keeping only the state between tokens, as stop tables do."""
    state, read = 0, b""
    for token in tokens:
        for position, byte in enumerate(token, start=1):
            state = rule.advance(state, byte)
            if state < 0:
                data = read + token[:position]
                return data[: len(data) + state + 1], True
        read += token
    return read, False


@in_each_format
@given(value=values)
def test_a_slot_ends_where_its_literal_is_complete(format: OutputFormat, value: Value) -> None:
    literal = format.escape(value).encode()
    written = literal + format.delimiter.encode() + b"junk"
    assert split_at_stop(format.stop, written) == (literal, True)
    for cut in range(len(written) + 1):
        tokens = [written[:cut], written[cut:]]
        assert split_over_tokens(format.stop, tokens) == (literal, True)
        if cut < len(literal):
            assert not split_at_stop(format.stop, written[:cut])[1]


@pytest.mark.parametrize(
    ("written", "value", "complete"),
    [
        (' "a",', ' "a"', True),
        (' "a"', ' "a"', True),
        (r' "a\",\\" b', r' "a\",\\"', True),
        (' "a,\n}', ' "a,\n}', False),
        ('\t["]", ["[\\"", 1], "b"], 5', '\t["]", ["[\\"", 1], "b"]', True),
        (" null", " null", True),
        (" true,", " true", True),
        (" falsehood", " false", True),
        (" nul,", " nul", True),
        (" trust\n", " trust", True),
        (" 5,", " 5", True),
        (" 5\n", " 5", True),
        (" 5}", " 5", True),
        (" 5", " 5", False),
        (",", "", True),
        (" \n", " ", True),
        ("}", "", True),
        (' {"a": 1}', ' {"a": 1', True),
    ],
)
def test_json_stop(written: str, value: str, complete: bool) -> None:
    rule = get_format("json").stop
    assert split_at_stop(rule, written.encode()) == (value.encode(), complete)


def test_stop_at_finds_delimiters_that_overlap_themselves() -> None:
    assert split_at_stop(stop_at("</"), b" a <</b") == (b" a <", True)
    assert split_at_stop(stop_at("aab"), b"aaab!") == (b"a", True)
    assert split_at_stop(stop_at(b"abcabd"), b"abcabcabd") == (b"abc", True)
    assert split_at_stop(NEWLINE, b"a") == (b"a", False)
    assert stop_at("é") == stop_at("é".encode())
    assert hash(stop_at("é")) == hash(stop_at("é"))
    for delimiter in ("", "x" * 101):
        with pytest.raises(ValueError, match="1 to 100"):
            stop_at(delimiter)


@given(
    delimiter=st.text(alphabet="ab", min_size=1, max_size=6),
    data=st.text(alphabet="ab", max_size=30),
)
def test_stop_at_agrees_with_find(delimiter: str, data: str) -> None:
    at = data.find(delimiter)
    expected = (data.encode(), False) if at < 0 else (data[:at].encode(), True)
    assert split_at_stop(stop_at(delimiter), data.encode()) == expected


@in_each_format
def test_rules_fit_small_tables(format: OutputFormat) -> None:
    for rule in (format.stop, format.end):
        states = tuple(sorted(transitions(rule)))
        assert states == tuple(range(len(states)))
        assert len(states) <= 100
        assert hash(rule) == hash(rule)


def test_deep_brackets_do_not_add_states() -> None:
    json_format = get_format("json")
    assert len(transitions(json_format.stop)) == 38
    assert len(transitions(json_format.end)) == 30
    assert split_at_stop(json_format.stop, b"[" * 50 + b"]" * 50)[1]


@pytest.mark.parametrize(
    ("name", "written", "value", "complete"),
    [
        ("json", '  "a": "}",\n  "b": [{"c": "\\"}"}]\n} junk', None, True),
        ("json", '  "a": {"b": 1}', None, False),
        ("yaml", "a: b\nc: d\n\njunk", "a: b\nc: d", True),
        ("yaml", "a: b\nc: d\n", None, False),
        ("xml", "  <a> b</a>\n</result>\njunk", "  <a> b</a>\n", True),
        ("xml", "  <a> b</a>\n", None, False),
    ],
)
def test_end_rules(name: str, written: str, value: str | None, complete: bool) -> None:
    expected = written.removesuffix(" junk") if value is None else value
    assert split_at_stop(get_format(name).end, written.encode()) == (
        expected.encode(),
        complete,
    )


# --- whole outputs ------------------------------------------------------------------------------

PATHS: list[Path] = [("Size",), ("dims", "width"), ("dims", "height"), ("Color",)]
FILLED: list[tuple[Path, Any]] = [
    (("Size",), "XL"),
    (("dims", "width"), 5),
    (("dims", "unit", "name"), None),
    (("Ports",), ["HDMI", "USB, C"]),
]
GOLDEN = {
    "json": """{
  "Size": "XL",
  "dims": {
    "width": 5,
    "unit": {
      "name": null
    }
  },
  "Ports": ["HDMI", "USB, C"]
}""",
    "yaml": """Size: XL
dims:
  width: 5
  unit:
    name: null
Ports: [HDMI, "USB, C"]
""",
    "xml": """<result>
  <size> XL</size>
  <dims>
    <width> 5</width>
    <unit>
      <name> null</name>
    </unit>
  </dims>
  <ports> HDMI | USB, C</ports>
</result>""",
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_golden_outputs(name: str) -> None:
    assert render(get_format(name), FILLED) == GOLDEN[name]


@pytest.mark.parametrize(
    ("name", "path", "previous", "key"),
    [
        ("json", ("Size",), None, '  "Size":'),
        ("json", ("Color",), ("Size",), ',\n  "Color":'),
        ("json", ("dims", "width"), None, '  "dims": {\n    "width":'),
        ("json", ("dims", "height"), ("dims", "width"), ',\n    "height":'),
        ("json", ("color",), ("dims", "width"), '\n  },\n  "color":'),
        ("json", (DocumentKey("1"), "Size"), None, '  "1": {\n    "Size":'),
        (
            "json",
            (DocumentKey("2"), "a"),
            (DocumentKey("1"), "b"),
            '\n  },\n  "2": {\n    "a":',
        ),
        ("yaml", ("Size",), None, "Size:"),
        ("yaml", ("Color",), ("Size",), "\nColor:"),
        ("yaml", ("dims", "width"), None, "dims:\n  width:"),
        ("yaml", ("color",), ("dims", "width"), "\ncolor:"),
        ("yaml", ("a: b",), None, '"a: b":'),
        ("yaml", ("5",), None, '"5":'),
        ("yaml", (DocumentKey("1"), "Size"), None, "1:\n  Size:"),
        ("xml", ("Size",), None, "  <size>"),
        ("xml", ("Color",), ("Size",), "</size>\n  <color>"),
        ("xml", ("dims", "width"), ("a",), "</a>\n  <dims>\n    <width>"),
        ("xml", ("color",), ("dims", "width"), "</width>\n  </dims>\n  <color>"),
        ("xml", (DocumentKey("1"), "Size"), None, '  <product id="1">\n    <size>'),
        ("xml", (DocumentKey('"<'), "a"), None, '  <product id="&quot;&lt;">\n    <a>'),
    ],
)
def test_golden_keys(name: str, path: Path, previous: Path | None, key: str) -> None:
    assert get_format(name).key(path, previous) == key


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Shoe Type", "shoe_type"),
        ("Item Weight (kg)", "item_weight_kg"),
        ("Größe", "grosse"),
        ("Café n° 5", "cafe_n_5"),
        ("4K ready", "field_4k_ready"),
        ("xmlns", "field_xmlns"),
        ("Result", "field_result"),
        ("Цвет", "цвет"),
        ("颜色", "颜色"),
        ("★", "field"),
        ("", "field"),
        ("_a__b_", "a_b"),
    ],
)
def test_xml_tags(name: str, expected: str) -> None:
    assert tag(name) == expected
    assert etree.fromstring(f"<{tag(name)}/>".encode()).tag == expected


@given(name=st.text())
def test_xml_tags_are_xml_names(name: str) -> None:
    assert etree.fromstring(f"<{tag(name)}/>".encode()).tag == tag(name)


def nested(filled: Sequence[tuple[Path, Any]], label: Any = str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in filled:
        node = tree
        for name in path[:-1]:
            node = node.setdefault(label(name), {})
        node[label(path[-1])] = value
    return tree


def load_xml(text: str) -> dict[str, Any]:
    def tree_of(element: Any) -> Any:
        if not len(element):
            value = (element.text or "").strip(" \t\r\n")
            return None if value == "null" else value
        return {
            f'product id="{child.get("id")}"' if child.get("id") else child.tag: tree_of(child)
            for child in element
        }

    root: dict[str, Any] = tree_of(etree.fromstring(text.encode()))
    return root


names = st.one_of(
    st.sampled_from(["Size", "a: b", "5", "null", "- x", "#", "Größe", "x y", '"', "&", "'"]),
    st.text(min_size=1, max_size=12).filter(lambda name: len(name.splitlines()) == 1),
).map(str)


@st.composite
def outputs(draw: st.DrawFn, scalars: st.SearchStrategy[Any]) -> list[tuple[Path, Any]]:
    """A schema of flat and nested names, once or for several documents, with a value for each."""
    shape: list[Path] = []
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        inner = draw(st.lists(names, max_size=2, unique=True))
        shape += [(name, below) for below in inner] or [(name,)]
    documents = draw(st.integers(0, 2))
    paths = [(DocumentKey(n + 1), *path) for n in range(documents) for path in shape] or shape
    return [(path, draw(scalars)) for path in paths]


def checked(format: OutputFormat, filled: Sequence[tuple[Path, Any]]) -> None:
    try:
        format.check([path for path, _ in filled])
    except ValueError:
        assume(False)


@given(filled=outputs(values))
def test_rendered_json_is_json(filled: list[tuple[Path, Any]]) -> None:
    checked(get_format("json"), filled)
    assert json.loads(render(get_format("json"), filled)) == nested(filled)


@given(filled=outputs(values))
def test_rendered_yaml_is_yaml(filled: list[tuple[Path, Any]]) -> None:
    checked(get_format("yaml"), filled)

    def label(name: str) -> Any:
        return int(name) if isinstance(name, DocumentKey) else str(name)

    assert load_yaml(render(get_format("yaml"), filled)) == nested(filled, label)


_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@given(filled=outputs(st.one_of(texts.filter(lambda text: not _NOT_XML.search(text)))))
def test_rendered_xml_is_xml(filled: list[tuple[Path, Any]]) -> None:
    xml = get_format("xml")
    checked(xml, filled)

    # lxml cannot tell references from the white space around them.
    expected = nested(
        [
            (path, None if value == "null" else value.strip(" \t\r\n") or "")
            for path, value in filled
        ],
        xml.label,  # type: ignore[attr-defined]
    )
    assert load_xml(render(xml, filled)) == expected


@in_each_format
@given(filled=outputs(values))
def test_a_whole_output_parses_to_its_values(
    format: OutputFormat, filled: list[tuple[Path, Any]]
) -> None:
    checked(format, filled)
    written = render(format, filled)[len(format.opening()) :]
    parsed = format.parse(written, [path for path, _ in filled])
    assert {
        path: format.unescape(parsed[path], is_list=is_list(value)) for path, value in filled
    } == dict(filled)
    end = split_at_stop(format.end, written.encode())
    if format.name == "json":
        assert end == (written.encode(), True)
    elif format.name == "xml":
        assert end == (written.removesuffix("</result>").encode(), True)
    else:
        assert end == (written.encode(), False)


@in_each_format
@given(filled=outputs(values), data=st.data())
def test_a_cut_output_parses_to_its_complete_part(
    format: OutputFormat, filled: list[tuple[Path, Any]], data: st.DataObject
) -> None:
    checked(format, filled)
    written = render(format, filled)[len(format.opening()) :]
    cut = data.draw(st.integers(0, len(written)))
    parsed = format.parse(written[:cut], [path for path, _ in filled])
    expected = {}
    length, previous = 0, None
    for path, value in filled:
        length += len(format.key(path, previous) + format.escape(value))
        # The line that a YAML output is cut in cannot be told from a complete one.
        if length + (format.name == "yaml") <= cut:
            expected[path] = value
        elif format.name == "yaml":
            parsed.pop(path, None)
            break
        previous = path
    values_of = dict(filled)
    found = {}
    for path, raw in parsed.items():
        with suppress(ValueError):  # the literal that the output is cut in
            found[path] = format.unescape(raw, is_list=is_list(values_of[path]))
    # A bare value and a tag are complete only once something follows.
    slack = {path for path in expected if path not in found}
    assert len(slack) <= 1
    assert found == {path: value for path, value in expected.items() if path not in slack}


@in_each_format
@given(
    text=st.one_of(
        texts,
        st.lists(
            st.sampled_from([*'{}[]<>/":,- \n\\&*', "Size", "dims", "a"]),
            max_size=40,
        ).map("".join),
    )
)
def test_any_text_parses_to_something(format: OutputFormat, text: str) -> None:
    parsed = format.parse(text, PATHS)
    assert set(parsed) <= set(PATHS)
    assert all(isinstance(raw, str) for raw in parsed.values())


SIZE, WIDTH, HEIGHT, COLOR = PATHS
BROKEN = ["(broken)"]


def read(format: OutputFormat, text: str, paths: Sequence[Path]) -> dict[Path, Value]:
    """The values of a whole output, BROKEN where a literal is refused."""
    values: dict[Path, Value] = {}
    for path, raw in format.parse(text, paths).items():
        try:
            values[path] = format.unescape(raw)
        except ValueError:
            values[path] = BROKEN
    return values


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("json", '"Size": 1.50, "Color": true}', {SIZE: "1.50", COLOR: "true"}),
        ("json", '```json\n{"Size": "a"}\n```', {SIZE: "a"}),
        ("json", '{"size": "a", "Other": {"Size": "b"}}', {SIZE: "a"}),
        ("json", '"Size": "a", "Color": "bl', {SIZE: "a", COLOR: BROKEN}),
        ("json", '"Size": "a", "Color": 1', {SIZE: "a", COLOR: BROKEN}),
        ("json", '"dims": {"width": 5, "height": [1, "', {WIDTH: "5", HEIGHT: BROKEN}),
        ("json", "'Size': 'a', 'dims': {'width': 5}}", {SIZE: "a", WIDTH: "5"}),
        ("json", '"Size": "a" "Color": "b"}', {SIZE: "a", COLOR: "b"}),
        ("json", '"Size": {"x": 1}, "dims": "5"}', {SIZE: BROKEN}),
        ("json", '"dims": {' * 2000, {}),
        ("yaml", "Size: 1.50\nColor: null\n", {SIZE: "1.50", COLOR: None}),
        ("yaml", "```yaml\nSize: a\n```", {SIZE: "a"}),
        (
            "yaml",
            "Size: a: b\ndims:\n  width: 5\nColor: @x\n",
            {SIZE: "a: b", WIDTH: "5", COLOR: "@x"},
        ),
        ("yaml", "Size:\n  - a\n  - 'b'\nColor: x\n", {SIZE: ["a", "b"], COLOR: "x"}),
        ("yaml", "Size:\n- a\n- b: c\nColor: @x\n", {SIZE: BROKEN, COLOR: "@x"}),
        ("yaml", "Size: |\n  a\n  b\nColor: x\n", {SIZE: "a\nb\n", COLOR: "x"}),
        ("yaml", 'Size: a\n"Color": \'b', {SIZE: "a", COLOR: BROKEN}),
        ("yaml", "Size: a\nCol", {SIZE: "a"}),
        (
            "yaml",
            "dims: &a\n  width: 5\n  height: *a\nSize: x\n",
            {WIDTH: "5", HEIGHT: BROKEN, SIZE: "x"},
        ),
        (
            "yaml",
            "dims:\n  width: 5\n  other: @x\n  height: 6\nColor:\n",
            {WIDTH: "5", HEIGHT: "6", COLOR: None},
        ),
        (
            "xml",
            "<size>AT&T</size><color> a < b</color>",
            {SIZE: "AT&T", COLOR: "a < b"},
        ),
        (
            "xml",
            "<dims>\n<width>5</width></dims><size> x</size>",
            {WIDTH: "5", SIZE: "x"},
        ),
        ("xml", "<size>a</size>\n<color>b", {SIZE: "a", COLOR: BROKEN}),
        (
            "xml",
            "<size>a</sizes>\n<other><color>b</color></other>",
            {SIZE: "a", COLOR: "b"},
        ),
        ("xml", "<size/><color>b</color>", {COLOR: "b"}),
        ("xml", "<width>5</width><dims><size>a</size>", {}),
    ],
)
def test_what_models_write(name: str, text: str, expected: dict[Path, Value]) -> None:
    format = get_format(name)
    assert read(format, text, PATHS) == expected


# --- keys that cannot be told apart -------------------------------------------------------------


@in_each_format
@pytest.mark.parametrize(
    "paths",
    [
        [("a",), ("b",), ("a",)],
        [("a",), ("a", "b")],
        [("a", "b"), ("a",)],
        [("a", "b"), ("c",), ("a", "d")],
        [("a", "b", "c"), ("a", "b", "c")],
    ],
)
def test_paths_that_coincide_are_refused(format: OutputFormat, paths: list[Path]) -> None:
    with pytest.raises(ValueError, match=r"'a'.* and 'a'.*cannot be told apart"):
        format.check(paths)


@in_each_format
def test_broken_names_are_refused(format: OutputFormat) -> None:
    with pytest.raises(ValueError, match="line breaks"):
        format.check([("a\nb",)])
    with pytest.raises(ValueError, match="at least one name"):
        format.check([()])


def test_tags_that_coincide_are_refused() -> None:
    for paths in (
        [("Shoe-type",), ("Shoe type",)],
        [("Shoe-type", "a"), ("Shoe type", "b")],
    ):
        with pytest.raises(ValueError, match=r"'Shoe-type'.* and 'Shoe type'.*shoe_type"):
            get_format("xml").check(paths)
        get_format("json").check(paths)
        get_format("yaml").check(paths)
    get_format("xml").check([("a", "Shoe-type"), ("b", "Shoe type")])


@in_each_format
def test_documents_share_one_output(format: OutputFormat) -> None:
    paths = [(DocumentKey(n), *path) for n in range(3) for path in PATHS]
    format.check(paths)
    text, previous = "", None
    for number, path in enumerate(paths):
        text += format.key(path, previous) + format.escape(f"value {number}")
        previous = path
    text += format.closing(paths[-1])
    found = {path: format.unescape(raw) for path, raw in format.parse(text, paths).items()}
    assert found == {path: f"value {number}" for number, path in enumerate(paths)}


# --- the registry -------------------------------------------------------------------------------


@dataclass(frozen=True)
class PropertiesFormat(BaseFormat):
    """A format of one's own: `key = value` lines, an empty value for null."""

    name = "properties"
    delimiter = "\n"
    stop = NEWLINE
    end = stop_at("\n\n")

    def opening(self) -> str:
        return ""

    def key(self, path: Path, previous: Path | None) -> str:
        return ("" if previous is None else "\n") + ".".join(path) + " ="

    def closing(self, last: Path) -> str:
        return "\n"

    def escape(self, value: Writable) -> str:
        return "" if value is None else f" {value}"

    def unescape(self, raw: str, *, is_list: bool = False) -> Value:
        text = raw.split("\n")[0].strip() or None
        return text.split(", ") if is_list and text else text  # type: ignore[return-value]

    def parse(self, text: str, paths: Sequence[Path]) -> dict[Path, str]:
        lines = dict(line.split(" =", 1) for line in text.splitlines() if " =" in line)
        return {path: lines[".".join(path)] for path in paths if ".".join(path) in lines}


@pytest.fixture
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_formats(monkeypatch)


@pytest.mark.usefixtures("fresh_registry")
def test_a_format_of_ones_own() -> None:
    before = format_names()
    register_format("properties", PropertiesFormat())
    assert before[:3] == BUILT_IN
    assert format_names() == (*before, "properties")
    format = get_format("properties")
    filled = [(("Size",), "XL"), (("dims", "width"), None), (("Color",), "red, blue")]
    written = render(format, filled)
    assert written == "Size = XL\ndims.width =\nColor = red, blue\n"
    parsed = format.parse(written, [path for path, _ in filled])
    assert {path: format.unescape(raw) for path, raw in parsed.items()} == dict(filled)
    assert format.unescape(parsed["Color",], is_list=True) == ["red", "blue"]
    with pytest.raises(ValueError, match="cannot be told apart"):
        format.check([("a",), ("a",)])


@pytest.mark.usefixtures("fresh_registry")
def test_names_are_not_taken_by_accident() -> None:
    same = get_format("json")
    register_format("json", same)
    with pytest.raises(ValueError, match="'json' is already registered"):
        register_format("json", PropertiesFormat())
    register_format("json", PropertiesFormat(), replace=True)
    assert get_format("json") == PropertiesFormat()
    with pytest.raises(ValueError, match="requires a name"):
        register_format("", PropertiesFormat())


def test_unknown_formats() -> None:
    with pytest.raises(ValueError, match="unknown format 'toml'; known are json, yaml, xml"):
        get_format("toml")
    with pytest.raises(TypeError, match=r"lacks .*escape"):
        get_format(io.StringIO())  # type: ignore[arg-type]
    mine = PropertiesFormat()
    assert get_format(mine) is mine


@in_each_format
def test_formats_are_values(format: OutputFormat) -> None:
    assert format == type(format)()
    assert hash(format) == hash(type(format)())
    assert isinstance(format, OutputFormat)


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("json", '{"brand": "LG", "size": 50, "size": 55}'),
        ("yaml", "brand: LG\nsize: 50\nsize: 55\n"),
        ("yaml", "brand: LG\nsize: 50\nNo, wait:\nbrand: LG\nsize: 55\n"),
        ("yaml", "```yaml\nbrand: LG\nsize: 50\n```\nOr:\n```yaml\nbrand: LG\nsize: 55\n```\n"),
    ],
)
def test_no_value_is_taken_out_of_two(format: str, text: str) -> None:
    output_format = get_format(format)
    literals = output_format.parse(text, [("brand",), ("size",)])
    assert output_format.unescape(literals["brand",]) == "LG"
    with pytest.raises(ValueError, match="single value"):
        output_format.unescape(literals["size",])
    same = output_format.parse(text.replace("55", "50"), [("size",)])
    assert output_format.unescape(same["size",]) == "50"
