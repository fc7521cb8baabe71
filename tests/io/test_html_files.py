"""Pages of HTML as documents: what a browser shows, in the encoding that the page states."""

from __future__ import annotations

import pytest
from test_document_files import located, problem, read


def test_html() -> None:
    page = """<!-- saved --><!DOCTYPE html><html><head><title>Invoice</title>
        <script>var a = "<p>5</p>"</script><style>p {}</style></head><body>
        <h1>Invoice&nbsp;&amp; &eacute;</h1><table><tr><th><th>Price<tr><td><p>Tea</p><p>leaf</p>
        <td>3.50 &euro;</table><div>a</div>b<p hidden>x</p><p style="display: none">y</p>
        <template>t</template><noscript>n</noscript><x-price>Total:<b>3</b>.50</x-price>
        <table><tr><td><p>one</p><p>two</p></td></tr></table><pre>k
v</pre>"""
    text = read(page, "a.html")
    lines = ["Invoice", "Invoice & é", "\tPrice", "Tea leaf\t3.50 €", "a", "b", "Total:3.50"]
    assert text.split("\n") == [*lines, "one", "two", "k", "v"]
    assert located(text, "3.50 €").paragraph == 4
    assert located(text, "\tPrice").paragraph == 3


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<meta charset="iso-8859-1"><p>é€'.encode("cp1252"), "é€"),
        ('<meta charset="nonsense"><p>é'.encode(), "é"),
        ("<p>é".encode("cp1252"), "é"),
        ("<html><p>é".encode("utf-16"), "é"),
        ("\ufeff<p>é".encode(), "é"),
        ('<meta charset="base64"><p>é'.encode(), "é"),
        # labels, as browsers read them
        ('<meta charset="shift_jis"><p>㈱髙①'.encode("cp932"), "㈱髙①"),
        ('<meta charset="x-sjis"><p>日本'.encode("cp932"), "日本"),
        ('<meta charset="euc-kr"><p>똠방'.encode("cp949"), "똠방"),
        ('<meta charset="gb2312"><p>镕㐂'.encode("gb18030"), "镕㐂"),
        ('<meta charset="tis-620"><p>ไทย…'.encode("cp874"), "ไทย…"),
        ('<meta charset="iso-8859-9"><p>ğ€'.encode("cp1254"), "ğ€"),
        ('<meta charset="x-user-defined"><p>é'.encode("cp1252"), "é"),
        ('<meta charset="utf-16"><p>é'.encode(), "é"),
        # where the encoding is stated
        (
            b'<META content="text/html; charset=ISO-8859-2" http-equiv=content-type><p>\xb3',
            "ł",
        ),
        (b'<!-- <meta charset="koi8-r"> --><meta charset=windows-1251><p>\xc0', "А"),
        (b'<?xml version="1.0" encoding="iso-8859-2"?><html><p>\xb3</p></html>', "ł"),
        (b'<?xml version="1.0" encoding=\'koi8-r\'?><meta charset="latin2"><p>\xb3', "ł"),
        ("<html><p>é😄".encode("utf-32"), "é😄"),
        ("\ufeff<html><p>é".encode("utf-32-be"), "é"),
    ],
)
def test_encodings_of_html(page: bytes, expected: str) -> None:
    assert read(page, "a.htm") == expected


def test_an_encoding_that_browsers_do_not_read_is_refused() -> None:
    page = b'<meta charset="hz-gb-2312"><p>~{<:~}'
    assert problem(page, "a.html") == "browsers do not read hz-gb-2312; save it in UTF-8"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("$49<sup>99</sup> each", "$49 99 each"),
        ("49<sup>,99 €</sup>", "49,99 €"),
        ("10<sup>6</sup> H<sub>2</sub>O x<sup><b>n</b></sup>", "10⁶ H₂O xⁿ"),
        ("10<sup>12</sup>, x<sub>max</sub>.", "10 12, x max."),
        ("<del>99</del><ins>79</ins>.", "99 79."),
        ("<s>5</s>4<strike>3</strike>2", "5 4 3 2"),
        ("4<img>5<svg><text>0</text></svg>6<input>7", "4 5 6 7"),
        ("4<video>0</video>5<script>0</script>6", "4 56"),
        ("<ruby>山田<rt>やまだ</ruby>さん", "山田 やまだ さん"),
        ("<ruby>山田<rp>(</rp><rt>やまだ</rt><rp>)</rp></ruby>", "山田(やまだ)"),
        ("<table><tr><td>4<b>5</b>0<sup>99</sup><td>1</table>", "450 99\t1"),
        ("<datalist><option>no</datalist><noframes>no</noframes>yes", "yes"),
    ],
)
def test_texts_that_a_page_sets_apart_stay_apart(page: str, expected: str) -> None:
    assert read(page, "a.html") == expected


def test_tags_of_xhtml_may_be_closed_at_once() -> None:
    page = """<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/>
        <script src="a>b.js"/></head><body><p/><div title="c">one</div><br/>two</body></html>"""
    assert read(page, "a.xhtml") == "one\ntwo"
