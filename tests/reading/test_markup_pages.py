"""Whole pages of HTML: each visible word is shown once and leads back; nothing else is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemax.io.document_files import read_html
from schemax.reading.markup import MarkedUp, as_marked_up, plain_text

# ● is a visible word, ○ a hidden one, ¤ any attributes, ¶ a line break.
ATTRIBUTES = """
|defer|async=async|itemscope itemtype=○|checked disabled|open |NOWRAP|alt=""|value=|=|#ref
|data-x="○"|DATA-X=○|data-json='{"a": "<b>○</b>"}'|aria-label="○ > ○"|title="&quot;○&gt;"|a=○
|onclick="if (a > b) { return '<p>○</p>' }"|@click="○ > 2"|:class="{a: ○ > 1}"|v-if="a < ○"
|(click)="○()"|[prop]="○"|*ngIf="○"|x-on:click.prevent=○|xlink:href="#○"|xml:lang="○"|href=/○/
|href="?a=1&b=○"|a="○"b="○"|class="○" class='○'|style="color: red"|placeholder="It's 55'' ○"
|title = "○¶○"|¶title¶=¶'○'¶""".replace("\n|", "|").split("|")
VISIBLE = """
<p¤>●</p>
<P¤ >●<P>●
<a¤>●</a> ●
<br¤>●<hr¤ />●<img¤>●<input¤/>●
<ul¤><li¤>●<li>●</li></ul>
<dl><dt¤>●<dd¤>●</dl>
<h1¤>●</h1><details¤><summary>●</summary>●</details>
<table¤><tr¤><td¤>●<table><tr><td>●</td></tr></table></td><th¤>●</table>
<select¤><option¤>●<option selected>●</select><button¤>●</button>
<textarea¤>●</textarea><title¤>●</title>
<my-card¤>●</my-card><o:p¤>●</o:p><unknown¤>●</unknown>
</unopened>●<b><i>●</b></i>●
●&amp;●&nbsp;●&#8220;●&#x201d;●
●&nbsp●&copy ●&#8220●&#x201D ●
● &unknown; ● & ●
<![CDATA[●]]>
<![if !IE]>●<![endif]>
<!--[if !IE]><!-->●<!--<![endif]-->
1 < 2 ● <55" ● <jo@example.com> ●
<del¤>●</del><ins¤>●</ins>●<sup¤>●</sup>●
<span¤>●</span><div¤>¶¶ ● ¶ ●</div><pre¤>●  ●</pre>
""".strip().split("\n")
HIDDEN = """
<script¤>○</script><SCRIPT¤>document.write('<p>○</p>')</Script¶>
<script¤/>○</script>
<script¤>if (a < ○ && b-- > c) { x = "</p><b>○</b>" }</script>
<script¤><!--¶○¶//--></script><script¤>//<![CDATA[¶○¶//]]></script>
<script type="text/template"¤><div>○</div></script><script>○</style></script>
<style¤>p > a { content: '○' }</style><style¤><!-- ○ --></style>
<noscript¤><p>○</p></noscript>
<template¤><p>○<template>○</template>○</p></template>
<svg¤><title>○</title><style/><g/></svg><math¤><mi>○</mi></math>
<object¤>○</object><iframe src=x¤>○</iframe>
<div hidden¤>○<div>○</div>○</div><p style="color: red; DISPLAY : none"¤>○</p>
<ul><li hidden¤>○<ul><li>○</li></ul></li></ul>
<!-- ○ <p>○</p> --><!-- ○ -- > ○ --><!-- ○ --!>
<!--[if lt IE 9]><p>○</p><![endif]-->
<!DOCTYPE html PUBLIC '○'><?php echo '○' ?><?xml version="1.0" ○?><![○]><!○>
<meta¤ content="○"><link rel=○¤>
""".strip().split("\n")


def page_of(elements: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """Writes a page with the elements, each with its attributes; and lists the visible words."""
    words: list[str] = []

    def word(match: re.Match[str]) -> str:
        words.append(f"{'seen' if match[0] == '●' else 'veiled'}{len(words)}x")
        return words[-1]

    lines = [line.replace("¤", attributes and f" {attributes}") for line, attributes in elements]
    source = "¶".join(["<!DOCTYPE html>¶<html lang=en>", *lines, "</html>"]).replace("¶", "\n")
    return re.sub("[●○]", word, source), [word for word in words if word.startswith("seen")]


def check(elements: Sequence[tuple[str, str]]) -> None:
    source, words = page_of(elements)
    page = as_marked_up(source)
    assert isinstance(page, MarkedUp)
    shown = list(re.finditer(r"(?:seen|veiled)\d+x", page.plain))
    assert [match[0] for match in shown] == words
    assert not re.search(r"</?[a-zA-Z][\w:-]*[\s/>]|<!|<\?|\]\]>", page.plain)
    for match in shown:
        start, end = page.place(*match.span())
        assert source[start:end].removeprefix("&nbsp") == match[0]


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_tags_go_whatever_their_attributes(attributes: str) -> None:
    check([(line, attributes) for line in VISIBLE + HIDDEN])


@given(st.lists(st.tuples(*map(st.sampled_from, (VISIBLE + HIDDEN, ATTRIBUTES))), max_size=12))
def test_elements_of_a_page_do_not_touch_each_other(elements: list[tuple[str, str]]) -> None:
    check(elements)


# In files, CDATA sections, noscript before a body and declarations with `?` are read otherwise.
ALIKE = [line for line in VISIBLE + HIDDEN if not re.search(r"CDATA\[●|<noscript|<\?", line)]


@pytest.mark.parametrize("line", ALIKE)
def test_texts_show_what_files_show(line: str) -> None:
    source, words = page_of([(line, "")])
    for text in (plain_text(as_marked_up(source)), read_html(source.encode())):
        assert re.findall(r"(?:seen|veiled)\d+x", text) == words
