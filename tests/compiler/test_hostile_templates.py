"""Templates that anyone may have written: bounded time and size, and an error that says so."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest
from command_line import SCHEMA, jsonl, refused, runner
from conftest import Small

from schemax import Extractor, ModelError, TemplateError
from schemax.compiler import TextCodec, compile_schema
from schemax.compiler import sandbox as bounds

SHOWN = "{% for document in documents %}{{ document.text }}{% endfor %}\n"
DOUBLING = "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = STEP %}{% endfor %}"

TOO_LARGE = [
    "{{ 'a' * 10**10 }}",
    "{{ ['a'] * 10**10 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 9**99999 * 9**99999 }}",
    *(DOUBLING.replace("STEP", step) for step in ("n.x + n.x", "n.x ~ n.x", "'%s%s' % (n.x, n.x)")),
    DOUBLING.replace("STEP", "n.x|replace('a', n.x)"),
    DOUBLING.replace("STEP", "'{0}{0}'.format(n.x)"),
    DOUBLING.replace("STEP", "n.x.join([n.x, n.x, n.x])"),
    DOUBLING.replace("STEP", "[n.x, n.x]|join"),
    "{{ 'a'.ljust(10**10) }}",
    "{{ 'a'|center(10**10) }}",
    "{{ 'a\n'|indent(10**10) }}",
    "{{ '%10000000000d' % 1 }}",
    "{{ '%*d' % (10**10, 1) }}",
    "{{ '{:10000000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=10**10) }}",
    "{{ '%s'|format('a' * 10**10) }}",
    "{% for i in range(9000) %}{{ 'a' * 1000 }}{% endfor %}",
    "{% set x %}{% for i in range(9000) %}{{ 'a' * 1000 }}{% endfor %}{% endset %}",
    "{% macro f() %}{% for i in range(9000) %}{{ 'a' * 1000 }}{% endfor %}{% endmacro %}{{ f() }}",
    "{{ (1).to_bytes(10**10, 'big') }}",
    "{{ 5|round(-10**10) }}",
    "{{ ('a' * 1000).encode().center(10**10) }}",
    "{{ ('a' * 1000).translate({97: 'b' * 100000}) }}",
    "{{ range(9999)|join('a' * 100000) }}",
    "{{ ('a' * 100000).join(range(999)|map('string')) }}",
    "{% for i in range(9999) %}{{ loop|join('a' * 100000) }}{% endfor %}",
    DOUBLING.replace("STEP", "[n.x, n.x]") + "{{ n.x == n }}",
    DOUBLING.replace("STEP", "{1: n.x, 2: n.x}") + "{{ n.x == n }}",
    DOUBLING.replace("STEP", "dict(a=n.x, b=n.x)") + "{{ n.x == n }}",
    DOUBLING.replace("STEP", "n.x * n.x").replace("'aa'", "3"),
    "{{ range(9999)|map('list')|sum(start=[]) }}",
]
ENDLESS = [
    "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "{% set n = namespace(x=0) %}{% for i in range(90000) %}{% for j in range(90000) %}"
    "{% set n.x = n.x + 1 %}{% endfor %}{% endfor %}",
    "{{ lipsum(n=10**9) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
]
NESTED = [
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
    "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "{{ " + "-" * 5_000 + "1 }}",
    "{{ " + "9" * 5_000 + " }}",
    "a" * 1_000_001,
]


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_STEPS", 2_000_000)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("template", [*TOO_LARGE, *NESTED])
def test_templates_that_do_too_much_are_refused(codec: TextCodec, template: str) -> None:
    with pytest.raises(TemplateError, match="template"):
        compile_schema(Small, codec, template=f"{template}\n{SHOWN}")


@pytest.mark.parametrize("template", ENDLESS)
def test_templates_that_take_too_long_are_refused(
    codec: TextCodec, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_SECONDS", 0.2)
    traced = sys.gettrace()
    with pytest.raises(TemplateError, match=r"takes more than 0\.2 seconds"):
        compile_schema(Small, codec, template=f"{template}\n{SHOWN}")
    assert sys.gettrace() is traced


@pytest.mark.parametrize("template", [TOO_LARGE[0], NESTED[0], NESTED[1]])
def test_chat_templates_are_bounded_too(codec: TextCodec, template: str) -> None:
    chatting = TextCodec.__new__(TextCodec)
    chatting.__dict__.update(codec.__dict__)
    chatting.chat_template = template
    with pytest.raises(ModelError, match="chat template fails"):
        compile_schema(Small, chatting)


def test_what_templates_usually_do_is_left_to_them(codec: TextCodec) -> None:
    usual = (
        "{{ '-' * 40 }}{{ 'a' ~ 1 ~ none }}{{ 'Price 123456: %s, %5d' % ('x', 3) }}{{ 2 ** 10 }}"
        "{{ '{:>8} 123456'.format('x') }}{{ [1, 2]|join(', ') }}{{ 'a b'|replace(' ', '_') }}"
        "{{ {'a': [1]}|tojson(indent=2) }}{{ 'a\nb'|indent(4) }}{{ 'ab'.center(8) }}{{ 7 % 4 }}"
        "{{ 'x'|center(5) }}{{ '%s!'|format('y') }}{{ 1 + 2 * 3 }}{{ [1] + [2] }}"
        "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('z') }}{{ 'a,b'.split(',')|length }}\n"
    )
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(usual).render()
    assert compile_schema(Small, codec, template=usual + SHOWN).prompt.instruction.rstrip() == plain


@pytest.mark.slow
def test_a_template_object_is_trusted(codec: TextCodec) -> None:
    trusted = jinja2.Template("{{ 'a' * 1000001 }}" + SHOWN)
    assert len(compile_schema(Small, codec, template=trusted).prompt.instruction) == 1_000_001


@pytest.mark.parametrize("template", [TOO_LARGE[0], NESTED[0]])
def test_a_folder_s_own_prompt_is_one_line_on_stderr(
    folder: Path, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "prompt.jinja").write_text(template + SHOWN)
    products = jsonl(tmp_path / "in.jsonl", [{"id": "a", "t": "LG"}])
    refused(runner(tmp_path, folder, monkeypatch)("extract", SCHEMA, products), "template")


def test_a_folder_s_own_prompt_is_text_and_no_path(folder: Path, tmp_path: Path) -> None:
    """Of one line without braces: it must not name a file of whoever loads the model."""
    (tmp_path / "secret.jinja").write_text("secret\n" + SHOWN)
    (folder / "prompt.jinja").write_text(str(tmp_path / "secret.jinja"))
    extractor = Extractor.from_pretrained(folder)
    with pytest.raises(TemplateError, match="must show the text of every document"):
        extractor.compile(Small)
