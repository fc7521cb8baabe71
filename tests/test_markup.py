"""HTML in texts: what is recognised, what is seen of it, and where that stands."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemax.documents import RecordFields, read_documents, shown_text
from schemax.reading.markup import MarkedUp, plain_text, recognised
from schemax.results.spans import SpanFinder


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d",
        '<55" television',
        "</product>",
        "x <b> y",
        "<style>x",
        "see <link> and <input>",
        "<product>shoe</product>",
        "if a <p and q> c",
        "Salt & Vinegar",
        "AT&T; &notit; &5;",
        "<!-- never closed",
        "",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert recognised(text) is text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Black &amp; Decker", "Black & Decker"),
        ("two  spaces &#38; <b> stay", "two  spaces & <b> stay"),
        ("Soft <b>cot</b>ton", "Soft cotton"),
        ("Soft<br/>Warm", "Soft\nWarm"),
        ("<P CLASS='a>b'>One</P>\n  <p>Two", "One\nTwo"),
        ("<ul><li>One</li><li>5&nbsp;&lt; 6</li></ul>", "One\n5 < 6"),
        ("<tr><td>Size</td><td>9</td></tr>", "Size 9"),
        ("<p>a<script>b < c; '<b>'</script><!-- d -->e</p>", "ae"),
        ('<p>a <product>shoe</product> <55"</p>', 'a <product>shoe</product> <55"'),
        ("<br>", ""),
    ],
)
def test_html_is_left_out(text: str, seen: str) -> None:
    found = recognised(text)
    assert found == text
    assert plain_text(found) == seen


PIECES = ["<p>", "</p>", "<b>", "</b>", "<br>", "&amp;", "&nbsp;", " ", "\n", "a", "ß ", "<55", "&",
          "<script>", "</script>", "<!--", "-->", '<a href="x>">', "</a>", "</x>"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("<p>a&amp;</p>")
def test_every_place_leads_back(text: str) -> None:
    found = recognised(text)
    if not isinstance(found, MarkedUp):
        return
    assert pickle.loads(pickle.dumps(found)).plain == found.plain
    last = 0
    for at, letter in enumerate(found.plain):
        start, end = found.place(at, at + 1)
        assert 0 <= last <= start < end <= len(text)
        last = start
        if not letter.isspace() and letter != "&":
            assert text[start:end] == letter
    if found.plain:
        assert found.place(0, len(found.plain))[1] <= len(text)


@given(st.text(alphabet="xy <>/&;\"'=!-", max_size=40))
def test_what_has_no_name_of_html_stays_as_it_is(text: str) -> None:
    assert recognised(text) is text


@pytest.mark.parametrize(
    "unit", ["<!--", "<a ", '<a b="', "<a b='\"", "</", "&", "<p", "<br ", "&a"]
)
def test_what_is_left_open_takes_linear_time(unit: str) -> None:
    started = time.process_time()
    recognised(unit * (200_000 // len(unit)))
    assert time.process_time() - started < 2


def test_spans_point_into_the_whole() -> None:
    text = "<p>Maker: <b>Black &amp; Decker</b></p>"
    found = SpanFinder({"text": recognised(text)}).locate("Black & Decker")
    assert found is not None
    assert text[found.start : found.end] == "Black &amp; Decker"


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
