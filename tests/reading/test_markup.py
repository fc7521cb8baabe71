"""HTML in texts: what is recognised, what is shown of it, and where that stands."""

from __future__ import annotations

import pickle
import time
import unicodedata
from html import unescape

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemax.extraction.documents import RecordFields, read_documents, shown_text
from schemax.reading.markup import MarkedUp, as_marked_up, plain_text
from schemax.results.spans import SpanFinder


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d",
        '<55" television',
        "</product>",
        "x <b> y",
        "x <y> z",
        "List<String> names",
        "<style>x",
        "see <link> and <input>",
        "<product><name>shoe</name></product>",
        "<product><title>Shirt</title><style>Casual</style></product>",
        '<item id="5"><p>Shirt</p></item>',
        "if a <p and q> c",
        "the <p hidden> tag",
        "Salt & Vinegar",
        "AT&T; &notit; &5; &copy 2020, ?a=1&reg=2",
        "&#" + "9" * 5000 + ";",
        "<!-- never closed",
        "<!-- closed -->",
        "<![CDATA[x]]>",
        "",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert as_marked_up(text) is text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Black &amp; Decker", "Black & Decker"),
        ("two  spaces &#38; <b> stay", "two  spaces & <b> stay"),
        ("5&nbsp;cm", "5 cm"),
        ("Soft <b>cot</b>ton", "Soft cotton"),
        ("Soft<br/>Warm", "Soft\nWarm"),
        ("<P CLASS='a>b'>One</P>\n  <p>Two", "One\nTwo"),
        ("<ul><li>One</li><li>5&nbsp;&lt; 6</li></ul>", "One\n5 < 6"),
        ("<tr><td>Size</td><td>9</td></tr>", "Size 9"),
        ("<p>a<script>b < c; '<b>'</script><!-- d -->e</p>", "ae"),
        ("<br>", ""),
        ('<div class="text">cut of', "cut of"),
        ("<p>&copy 2020 &nbsp&auml;&aumlten &#8220;x&#x201D; &that;&", "© 2020 ääten “x” &that;&"),
        # every tag of a page goes, whatever its name; what cannot be a name stays
        ('<p>a <product>shoe</product> <55"</p>', 'a\nshoe\n<55"'),
        ("<my-card><p>a</p></my-card><svg:path>b", "a\nb"),
        ("<p>See <jo@example.com>, <http://a.com></p>", "See <jo@example.com>, <http://a.com>"),
        ("<title>a <b>c</b></title>", "a c"),
        # what is left open
        ("<p>a<script>never closed", "a"),
        ("<p>a<!-- never closed <b>c</b>", "a"),
        ("<p>a <b", "a <b"),
        ("<br><div hidden>a", "a"),
        ("<p>a<script/>b</script>c", "ac"),
        ("<p>a<script>b</script\n<!-- > c --><p>d", "a\nd"),
        ("<svg><style/><g>a</g></svg><p>b", "b"),
        # hidden elements end where they end
        ("<div>a<div hidden>b<div>c</div>d</div>e</div>", "a\ne"),
        ("<ul><li style='x: y; DISPLAY :none'>a<ul><li>b</li></ul></li><li>c</li></ul>", "c"),
    ],
)
def test_html_is_left_out(text: str, shown: str) -> None:
    marked = as_marked_up(text)
    assert marked == text
    assert plain_text(marked) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # cents and other texts are parted from what stands around them
        ("$49<sup>99</sup>", "$49 99"),
        ("<sup>$</sup><b>49</b><sup>99</sup> each", "$49 99 each"),
        ("49<sup>,99 €</sup>", "49,99 €"),
        ("<del>99</del><ins>79</ins>.", "99 79."),
        ("<s>5</s>4<strike>3</strike>2", "5 4 3 2"),
        ("4<img src=star.png>5<input>6", "4 5 6"),
        ("Brand<sup>®</sup>, 1<sup>st</sup>, x<sub>max</sub>", "Brand ®, 1 st, x max"),
        ("10<sup>12</sup>, in 1990.<sup>12</sup>", "10 12, in 1990. 12"),
        ("word<sup><a href=#n>1</a></sup>, x<sup>1&lt;2</sup>", "word 1, x 1<2"),
        # exponents, charges, marks and numbers of atoms are raised and lowered
        ("10<sup>6</sup> m<sup class=x>-2</sup> x<sup>n</sup> Ca<sup>2+</sup>", "10⁶ m⁻² xⁿ Ca²⁺"),
        ("H<sub>2</sub>O, C<sub>12</sub>H<sub>22</sub>", "H₂O, C₁₂H₂₂"),
        ("a note<sup>12</sup> b", "a note¹² b"),
        ("<sup></sup>a<sup> </sup>b", "a b"),
    ],
)
def test_raised_lowered_and_changed_texts_make_no_other_number(text: str, shown: str) -> None:
    assert plain_text(as_marked_up(text)) == shown


PIECES = """<p>|</p>|<b>|</b>|<br>|&amp;|&nbsp;| |
|a|ß |<55|&|<script>|</script>|<!--|-->|<a href="x>">|</a>|</x>|<sup>|</sup>|2|-|<del>|</del>|<svg>
|</svg>|<p hidden>|<x-y/>|<style/>|'|"|<![CDATA[|]]>|<![if x]>|<?|<!|</|&copy|&#65|<a b='|--!>|>
|<sub class=x>|</sub>|+|n|<li style="display: none">|</li>|-- >|</script |<!-->|<jo@example>"""


@given(st.lists(st.sampled_from(PIECES.split("|")), max_size=24).map("".join) | st.text())
@example("<p>a&amp;</p>")
@example("<br>&#1;&#xD800;&fjlig;")
def test_every_place_leads_back(text: str) -> None:
    marked = as_marked_up(text)
    assert marked == text
    if not isinstance(marked, MarkedUp):
        return
    copy = pickle.loads(pickle.dumps(marked))
    last = 0
    for at, letter in enumerate(marked.plain):
        start, end = marked.place(at, at + 1)
        assert copy.place(at, at + 1) == (start, end)
        assert 0 <= last <= start < end <= len(text)
        last = start
        if not letter.isspace():
            source = text[start:end]
            usual = unicodedata.normalize("NFKC", letter).replace("−", "-")
            assert letter == source or letter in unescape(source) or usual == source


@given(st.text(alphabet="xy <>/&;\"'=!-", max_size=40))
def test_what_has_no_name_of_html_stays_as_it_is(text: str) -> None:
    assert as_marked_up(text) is text


UNITS = """<!--|<a |<a b="|<a b='"|</|&|<p|<br |&a|&#1|<a/|<a b= |<?|<!|<![|<![CDATA[|<|<x>|<sup>
|<script>|<script/>|</script |-- |<svg><style/>|<p hidden>|<p style='display |<title>|<iframe>"""


@pytest.mark.parametrize("unit", UNITS.split("|"))
@pytest.mark.parametrize("before", ["", "<br>"])
def test_what_is_left_open_takes_linear_time(before: str, unit: str) -> None:
    started = time.process_time()
    as_marked_up(before + unit * (100_000 // len(unit)))
    assert time.process_time() - started < 30  # measured: 0.1; only a hang fails


def test_spans_point_into_the_whole() -> None:
    text = "<p>Maker: <b>Black &amp; Decker</b>, $49<sup>99</sup>, CO<sub>2</sub></p>"
    finder = SpanFinder({"text": as_marked_up(text)})
    for value, source in (
        ("Black & Decker", "Black &amp; Decker"),
        ("$49 99", "$49<sup>99"),
        ("CO2", "CO<sub>2"),
    ):
        span = finder.locate(value)
        assert span is not None
        assert text[span.start : span.end] == source


def test_documents_are_shown_without_html_unless_it_is_kept() -> None:
    record = {"title": "<b>Mug</b>", "tags": ["<i>a</i>", "b"], "note": "<br>"}
    assert shown_text(record, RecordFields()) == (
        "title: Mug\ntags: a, b",
        {"title": "<b>Mug</b>", "tags": "<i>a</i>, b"},
    )
    kept = RecordFields.of(None, "id", None, html="keep")
    assert shown_text(record, kept)[0] == "title: <b>Mug</b>\ntags: <i>a</i>, b\nnote: <br>"
    (empty,) = read_documents(["<br>"], RecordFields())
    assert empty.problem == "the text is empty"
    with pytest.raises(ValueError, match='"strip" or "keep", not \'clean\''):
        RecordFields.of(None, "id", None, html="clean")  # type: ignore[arg-type]
