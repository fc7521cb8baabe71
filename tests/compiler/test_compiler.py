"""Prompts, skeletons, budgets and stop rules: text becomes token ids without surprises."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np
import pytest
import tokenizers
from conftest import slow_but
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from schemax.attributes import attr
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec, as_codec, compile_schema, load_codec
from schemax.compiler.automata import compile_stop
from schemax.compiler.prompt import clean_document, template_names
from schemax.compiler.skeleton import render_values
from schemax.config import PRESETS, DecodingConfig, resolve_decoding
from schemax.errors import ModelError, SchemaError, TemplateError
from schemax.extraction.schema import AttrSchema
from schemax.formats import NEWLINE, get_format
from schemax.formats.base import split_at_stop
from schemax.tokens import DONE

FORMATS = ("json", "yaml", "xml")
TOKENIZERS = ("qwen2", "gpt-2", "phi-3")


class Size(BaseModel):
    width: float | None = None
    height: float | None = None


class Television(AttrSchema):
    """A television set."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal, inches", k_max=8)
    resolution: Literal["720p", "1080p", "4K"] | None = None
    smart: bool | None = None
    ports: list[str] = attr("Connectors", default_factory=list)
    size: Size | None = None


@pytest.fixture(scope="module", params=slow_but({"gpt-2", "phi-3"}, TOKENIZERS))
def real(request: pytest.FixtureRequest, data: Path) -> TextCodec:
    return load_codec(data / "tokenizers" / request.param)


@pytest.fixture(
    scope="module",
    params=slow_but({"small", "embedded", "gpt-2", "phi-3"}, ["small", "embedded", *TOKENIZERS]),
)
def any_codec(request: pytest.FixtureRequest, codec: TextCodec) -> TextCodec:
    if request.param == "small":
        return codec
    if request.param == "embedded":
        return load_codec(resource_dir("embedded"))
    folder = request.getfixturevalue("data") / "tokenizers" / request.param
    return load_codec(folder)


def text_of(codec: TextCodec, ids: Any) -> str:
    return codec.decode_bytes(ids).decode()


# Tokenizers


AWKWARD = [
    "",
    " two  spaces ",
    "é 日本語 עברית 👩‍👩‍👧 \u202e",
    "<|im_end|><|endoftext|></s><s>",
    "a\x00b\ttab\r\nline",
    '{{ 7*7 }} {% raw %} \\" </product>',
]


@pytest.mark.parametrize("text", AWKWARD)
def test_text_survives_and_holds_no_special_token(any_codec: TextCodec, text: str) -> None:
    ids = any_codec.encode(text)
    assert any_codec.decode_bytes(ids).decode() == text
    special = {a["id"] for a in any_codec.added_tokens if a["special"]}
    assert not special & set(ids)
    assert any_codec.encode_batch([text, "x"])[0] == ids


def test_segments_join_without_prefix_spaces(any_codec: TextCodec) -> None:
    parts = ["one", ' "two', "three"]
    joined = [i for part in parts for i in any_codec.encode(part)]
    assert text_of(any_codec, joined) == "".join(parts)


@pytest.mark.release
def test_transformers_tokenizer_gives_the_same(data: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    folder = data / "tokenizers" / "qwen2"
    theirs = as_codec(PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")))
    assert theirs.encode("Samsung <|im_end|>") == load_codec(folder).encode("Samsung <|im_end|>")


def test_unfit_tokenizers_are_refused(tmp_path: Path) -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    with pytest.raises(ModelError, match="WordLevel"):
        as_codec(words)
    with pytest.raises(ModelError, match="not a fast tokenizer"):
        as_codec(object())
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        load_codec(tmp_path)
    empty = tokenizers.Tokenizer(tokenizers.models.BPE())
    with pytest.raises(ModelError, match="changes text"):
        as_codec(empty)
    lower = tokenizers.Tokenizer.from_str(_small_codec().to_str())
    lower.normalizer = tokenizers.normalizers.Lowercase()
    with pytest.raises(ModelError, match="changes text"):
        as_codec(lower)


# Stop rules


@pytest.mark.parametrize("format", FORMATS)
def test_stop_table_of_real_tokenizers_by_their_bytes(real: TextCodec, format: str) -> None:
    """Every token from every state, against the rule run over the token's decoded bytes."""
    rule = get_format(format).stop
    table = compile_stop(rule, real, real.eos_ids, real.vocab_size).next_state
    inside = int(table[0, real.encode(' "')[0]])
    for state in range(len(table)):
        # All tokens from the start and within a string, a seventh of them from the other states.
        stride = 1 if state in (0, inside) else 7
        for token in range(0, len(real.token_bytes), stride):
            data = real.token_bytes[token]
            expected = state
            for byte in data:
                expected = rule.advance(expected, byte)
                if expected < 0:
                    expected = DONE
                    break
            assert table[state, token] == expected, (state, token, data)


@pytest.mark.parametrize(
    ("format", "text", "value"),
    [
        ("json", ' "5\\" pipe",\n  "x"', ' "5\\" pipe"'),  # an escaped quote
        ("json", ' "a, b.",\n', ' "a, b."'),
        ("json", ' "日本語 👍",\n', ' "日本語 👍"'),
        ("json", " 12.5,\n", " 12.5"),
        ("json", " null,\n", " null"),
        ("json", ' ["a]", "b"],\n', ' ["a]", "b"]'),
        ("yaml", ' "a \\n b"\nnext', ' "a \\n b"'),
        ("xml", " a < b</size>\n", " a < b"),
        ("xml", " 5</size>", " 5"),
    ],
)
def test_stops_in_every_cut_of_the_text(
    any_codec: TextCodec, format: str, text: str, value: str
) -> None:
    """Merged delimiters, delimiters spread over tokens, characters cut in two."""
    rule = get_format(format).stop
    table = compile_stop(rule, any_codec, (), any_codec.vocab_size).next_state
    by_byte = {data: token for token, data in enumerate(any_codec.token_bytes) if len(data) == 1}
    whole = any_codec.encode(text)
    single = [by_byte[bytes([byte])] for byte in text.encode() if bytes([byte]) in by_byte]
    cuts = [whole] + ([single] if len(single) == len(text.encode()) else [])
    for ids in cuts:
        state, used = 0, []
        for token in ids:
            used.append(token)
            state = int(table[state, token])
            if state == DONE:
                break
        assert state == DONE
        data, complete = split_at_stop(rule, any_codec.decode_bytes(used))
        assert (data.decode(), complete) == (value, True)


def test_quote_tokens_of_real_tokenizers_keep_their_characters(real: TextCodec, data: Path) -> None:
    """Tokens such as `.",` hold a value's last character, and `\\",` does not end a string."""
    rule = get_format("json").stop
    table = compile_stop(rule, real, (), real.vocab_size).next_state
    inside = int(table[0, real.encode(' "')[0]])
    quoted = [i for i, token in enumerate(real.token_bytes) if b'"' in token and b"\\" not in token]
    assert len(quoted) > 20
    for token in quoted:
        text = real.token_bytes[token]
        assert table[inside, token] == DONE
        value, complete = split_at_stop(rule, b' "x' + text)
        assert complete
        assert value == b' "x' + text[: text.index(b'"') + 1]
    escaped = [
        i for i, t in enumerate(real.token_bytes) if t.startswith(b'\\"') and t.count(b'"') == 1
    ]
    assert escaped
    assert all(table[inside, token] != DONE for token in escaped)


def test_tokens_beyond_the_tokenizer_leave_the_state(codec: TextCodec) -> None:
    table = compile_stop(NEWLINE, codec, (0,), codec.vocab_size + 8)
    assert table.next_state.shape == (1, codec.vocab_size + 8)
    assert not table.next_state[:, codec.vocab_size :].any()
    assert table.next_state.dtype == np.int8
    assert table.eos_ids == (0,)


def test_oversized_rules_are_refused(codec: TextCodec) -> None:
    @dataclass(frozen=True)
    class Endless:
        def advance(self, state: int, byte: int) -> int:
            return state + 1 if state < 300 else -1

    with pytest.raises(ValueError, match="at most"):
        compile_stop(Endless(), codec, (), codec.vocab_size)


# Skeletons


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("preset", ["isolated", "paper"])
def test_slots_begin_where_the_tokenizer_cuts(
    any_codec: TextCodec, format: str, preset: str
) -> None:
    compiled = compile_schema(Television, any_codec, format=format, decoding=preset)
    assert compiled.odd_boundaries == ()


def test_odd_boundaries_are_named(codec: TextCodec) -> None:
    class Odd(get_format("yaml").__class__):  # type: ignore[misc]
        def key(self, path: tuple[str, ...], previous: tuple[str, ...] | None) -> str:
            return f"{super().key(path, previous)} Sam"

        def escape(self, value: Any) -> str:
            return str(super().escape(value)).strip().removeprefix("Sam")

    with pytest.warns(UserWarning, match="brand"):
        compiled = compile_schema(Television, codec, format=Odd())
    assert "brand" in compiled.odd_boundaries


@pytest.mark.parametrize("format", FORMATS)
def test_filled_skeleton_parses_back(codec: TextCodec, format: str) -> None:
    compiled = compile_schema(Television, codec, format=format, decoding="autoregressive")
    values = ["Samsung & <Co>", "55", None, "true", ["HDMI", "USB, C"], "1", None]
    text = render_values(compiled.attributes, compiled.format, values)
    body = text.removeprefix(compiled.format.opening())
    paths = [attribute.labels for attribute in compiled.attributes]
    parsed = compiled.format.parse(body, paths)
    read = [
        compiled.format.unescape(parsed[path], is_list=attribute.is_list)
        for path, attribute in zip(paths, compiled.attributes, strict=True)
    ]
    assert read == values
    # The budget of a whole output covers it.
    assert len(codec.encode(body)) <= compiled.k_max[0]


@pytest.mark.parametrize("format", FORMATS)
def test_keys_of_both_layouts_make_the_same_document(codec: TextCodec, format: str) -> None:
    gapped = DecodingConfig(layout="gapped", documents="stacked", documents_per_prompt=2)
    compiled = compile_schema(Television, codec, format=format, decoding=gapped)
    null = compiled.format.escape(None)
    text = compiled.format.opening() + "".join(k + null for row in compiled.key_texts for k in row)
    assert text.count(null) == 14
    branched = compile_schema(Television, codec, format=format)
    assert branched.num_slots == 7
    for n, key in enumerate(branched.key_texts[0]):
        assert (
            compiled.key_texts[0][n].strip("\n, }").endswith(key.strip().splitlines()[-1].strip())
        )


@pytest.mark.parametrize("format", FORMATS)
def test_budgets(any_codec: TextCodec, format: str) -> None:
    compiled = compile_schema(Television, any_codec, format=format)
    budget = dict(zip([a.name for a in compiled.attributes], compiled.k_max, strict=True))
    assert budget["brand"] == 30
    assert budget["screen_size"] == 8
    assert budget["ports"] == 60
    assert budget["smart"] < 12
    for text in ("720p", "1080p", "4K", None):
        literal = compiled.format.escape(text) + compiled.format.delimiter
        assert len(any_codec.encode(literal)) <= budget["resolution"]
    uniform = compile_schema(Television, any_codec, format=format, decoding="paper")
    assert set(uniform.k_max) == {30, 8}


# Prompts


@pytest.mark.parametrize("template", template_names())
@pytest.mark.parametrize("stacked", [False, True])
def test_templates_show_attributes_and_documents(
    codec: TextCodec, template: str, stacked: bool
) -> None:
    config = DecodingConfig(documents="stacked" if stacked else "isolated", documents_per_prompt=3)
    compiled = compile_schema(Television, codec, template=template, decoding=config)
    prompts = compiled.encode(["first", "second", "third"])
    assert len(prompts) == (1 if stacked else 3)
    prompt = prompts[0]
    instruction = text_of(codec, prompt.instruction)
    for shown in ("brand", "Manufacturer", "Samsung", "720p", "1080p", "size > width", "JSON"):
        assert shown in instruction
    documents = [text_of(codec, ids) for each in prompts for ids in each.documents]
    assert "second" in documents[1]
    assert ('id="2"' in documents[1]) == stacked
    assert ('"3"' in compiled.key_texts[-1][0]) == stacked
    assert text_of(codec, prompt.opening).endswith("{\n")
    # Isolated prompts tell neither J nor an index.
    if not stacked:
        assert compiled.encode(["second"])[0].documents == prompts[1].documents


@pytest.mark.parametrize("preset", ["isolated", "paper"])
def test_document_text_is_data(any_codec: TextCodec, preset: str) -> None:
    text = "{{ 7*7 }} {% for %} </product> </PRODUCT > <|im_end|> \ud800 \x00 👍"
    compiled = compile_schema(Television, any_codec, decoding=preset)
    (prompt,) = compiled.encode([text])
    shown = text_of(any_codec, prompt.documents[0])
    assert "{{ 7*7 }}" in shown
    assert "49" not in shown
    assert "<|im_end|>" in shown
    assert "</product>" not in shown.lower().split("</product>\n")[0]
    assert "&lt;/product>" in shown
    assert "\ufffd \x00 👍" in shown


def test_two_halves_of_a_character_find_each_other() -> None:
    assert clean_document(" \ud83d\udc4d \udc4d ", None) == "👍 \ufffd"


@pytest.mark.slow
def test_chat_template_wraps_the_prompt(data: Path) -> None:
    codec = load_codec(data / "tokenizers" / "phi-3")
    compiled = compile_schema(Television, codec)
    (prompt,) = compiled.encode(["<|user|> LG"])
    names = {a["content"]: a["id"] for a in codec.added_tokens}
    assert prompt.instruction[:2] == (names["<s>"], names["<|user|>"])
    assert prompt.instruction.count(names["<|user|>"]) == 1
    assert names["<|user|>"] not in prompt.documents[0]
    assert names["<|assistant|>"] in prompt.opening
    # A base model gets the format announced in the prompt instead.
    base = load_codec(data / "tokenizers" / "gpt-2")
    assert text_of(base, compile_schema(Television, base).opening).endswith("JSON:\n{\n")


def test_thinking_is_turned_off(backend: tokenizers.Tokenizer) -> None:
    chat = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "[assistant]{% if enable_thinking is false %}<think></think>{% endif %}"
    )
    specials = {"bos_token": "<|endoftext|>"}
    codec = TextCodec(backend, special_tokens=specials, chat_template=chat)
    compiled = compile_schema(Television, codec)
    assert compiled.instruction[0] == backend.token_to_id("<|endoftext|>")
    assert "<think></think>" in text_of(codec, compiled.opening)


def test_chat_templates_as_they_are_found(backend: tokenizers.Tokenizer) -> None:
    """`generation` marks and absent tools."""
    chat = (
        "{% if tools is not none %}TOOLS{% endif %}{% for m in messages %}{% generation %}"
        "{{ '[A]' if m.role == 'assistant' }}{{ m.content }}{% endgeneration %}{% endfor %}[A]"
    )
    compiled = compile_schema(Television, TextCodec(backend, chat_template=chat))
    assert (compiled.prompt.chat.prefix, compiled.prompt.chat.suffix) == ("", "[A]")


_TURNS = (
    "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}</u>{% else %}"
    "ANSWER{{ m.content }}<end>{% endif %}{% endfor %}{% if add_generation_prompt %}GENERATION"
    "{% endif %}"
)


@pytest.mark.parametrize(
    ("answer", "generation", "begin"),
    [
        ("<a>", "<a>", "<a>"),
        # The channels of harmony: the generation prompt leaves open which comes first.
        ("<a><|channel|>final<|message|>", "<a>", "<a><|channel|>final<|message|>"),
        ("<a><|START_RESPONSE|>", "<a><|START_THINKING|>", "<a><|START_RESPONSE|>"),
        ("[|assistant|]", "[|assistant|]<thought>\n", "[|assistant|]"),
        ("<a>", "<a><think>{{ '</think>' if enable_thinking is false }}", "<a><think></think>"),
        (
            "<a><R>",
            "<a><T>{{ '</T>' if enable_thinking is false }}",
            "<a><R>",
        ),
    ],
)
def test_prompts_end_where_an_answer_begins(
    backend: tokenizers.Tokenizer, answer: str, generation: str, begin: str
) -> None:
    chat = _TURNS.replace("ANSWER", answer).replace("GENERATION", generation)
    codec = TextCodec(backend, chat_template=chat)
    compiled = compile_schema(Television, codec)
    assert compiled.prompt.chat.suffix == f"</u>{begin}"
    assert text_of(codec, compiled.opening).endswith(f"</u>{begin}{{\n")


def test_templates_that_show_no_answer_are_warned_of(backend: tokenizers.Tokenizer) -> None:
    chat = "<u>{{ messages[0].content }}</u><a><thought>{{ raise('no') if messages[1] }}"
    with pytest.warns(UserWarning, match="'</u><a><thought>', where the model may mean to think"):
        compiled = compile_schema(Television, TextCodec(backend, chat_template=chat))
    assert compiled.prompt.chat.suffix == "</u><a><thought>"


def test_base_models_get_their_bos_once(backend: tokenizers.Tokenizer) -> None:
    with_bos = tokenizers.Tokenizer.from_str(backend.to_str())
    bos = with_bos.token_to_id("<|endoftext|>")
    with_bos.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", bos)]
    )
    (prompt,) = compile_schema(Television, with_bos).encode(["LG"])
    everything = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    assert prompt.instruction[0] == bos
    assert everything.count(bos) == 1
    assert bos not in compile_schema(Television, backend).encode(["LG"])[0].instruction


def test_a_saved_padding_does_not_hide_the_bos(backend: tokenizers.Tokenizer) -> None:
    padded = tokenizers.Tokenizer.from_str(backend.to_str())
    bos = padded.token_to_id("<|endoftext|>")
    padded.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", bos)]
    )
    for side in ("left", "right"):
        padded.enable_padding(direction=side, pad_id=bos, pad_token="<|endoftext|>", length=16)
        assert TextCodec(padded).prefix_ids == (bos,)


_INSTRUCTED = (
    "{{ bos_token }}{% for m in messages %}{{ '[INST] ' + m.content + ' [/INST]' if m.role == "
    "'user' else ' ' + m.content + '</s>' }}{% endfor %}"
)
_BARE = "{% for m in messages %}{{ '</s>' + m.content }}{% endfor %}</s>"


@pytest.mark.parametrize("chat", [_INSTRUCTED, _BARE, None])
@pytest.mark.parametrize("scheme", ["prepend", "always", "first"])
def test_pieces_have_the_tokens_of_the_whole_text(scheme: str, chat: str | None) -> None:
    """Tokenizers as SentencePiece makes them put a space before a text, or before every run."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    schemes = {"prepend": "always"}
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(
        prepend_scheme=schemes.get(scheme, scheme)
    )
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(
        special_tokens=["<s>", "</s>"],
        initial_alphabet=["▁", "\n", "é", *map(chr, range(33, 127))],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["Read the {text} LG [INST] [/INST] JSON"] * 9, trainer)
    if scheme == "prepend":  # as Llama 2 and Phi 3 do, by a normalizer
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
        )
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    codec = TextCodec(tokenizer, special_tokens={"bos_token": "<s>"}, chat_template=chat)
    template = "Read the text\n{{ documents[0].text }}\n"
    compiled = compile_schema(Television, codec, template=template)
    (prompt,) = compiled.encode(["LG"])
    ids = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    rendered = compiled.prompt
    parts = rendered.chat.prefix, rendered.instruction, "LG", rendered.closing, rendered.chat.suffix
    whole = tokenizer.encode("".join([*parts, "{\n"]), add_special_tokens=chat is None)
    assert ids == whole.ids
    if scheme != "first" or chat is None:  # servers put the BOS before texts by themselves
        served = tokenizer.encode(codec.text_of(ids), add_special_tokens=chat != _BARE)
        assert served.ids == ids


def test_runs_of_spaces_stay_tokens(backend: tokenizers.Tokenizer) -> None:
    indented = tokenizers.Tokenizer.from_str(backend.to_str())
    indented.add_tokens([tokenizers.AddedToken("  ", normalized=False), "<tool>"])
    codec = TextCodec(indented)
    assert codec.encode("  x")[0] == indented.token_to_id("  ")
    assert indented.token_to_id("<tool>") not in codec.encode("a <tool>")


@pytest.mark.filterwarnings("ignore:the chat template does not show")
def test_nothing_stale_is_kept(tmp_path: Path, backend: tokenizers.Tokenizer) -> None:
    """An edited template and a changed chat template are seen at the next call."""
    from transformers import PreTrainedTokenizerFast

    path = tmp_path / "own.jinja"
    path.write_text("one {{ documents[0].text }}")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert compile_schema(Television, tokenizer, template=path).prompt.instruction == "one "
    path.write_text("two {{ documents[0].text }}")
    assert compile_schema(Television, tokenizer, template=path).prompt.instruction == "two "
    tokenizer.chat_template = "U: {{ messages[0].content }} A:"
    assert compile_schema(Television, tokenizer, template=path).prompt.chat.prefix == "U: "
    tokenizer.chat_template = None
    assert compile_schema(Television, tokenizer, template=path).prompt.chat.prefix == ""


def test_broken_tokenizer_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be read"):
        compile_schema(Television, tmp_path)


@pytest.mark.parametrize(
    ("chat", "reason"),
    [("{{ raise_exception('no') }}", "fails"), ("hello", "drops"), ("{{ ''.__class__ }}", "drops")],
)
def test_bad_chat_templates_are_named(
    backend: tokenizers.Tokenizer, chat: str, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        compile_schema(Television, TextCodec(backend, chat_template=chat))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("nowhere", "verbatim"),
        ("{{ unclosed", "line 1"),
        ("no documents\n", "every document"),
        ("{{ documents[0].text }} {{ nothing }}", "nothing"),
        ("{{ documents[0].text }} {{ ''.__class__.__mro__ }}", "unsafe|cannot be rendered"),
        ("{{ documents[0].text.x.y }}\n", "cannot be rendered"),
        ("{{ documents[0].text }} {{ 1 / 0 }}", "ZeroDivisionError"),
    ],
)
def test_bad_templates_are_named(codec: TextCodec, template: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        compile_schema(Television, codec, template=template)


def test_templates_from_anywhere(codec: TextCodec, tmp_path: Path) -> None:
    text = "{{ category }}: {{ documents[0].text }} and again {{ documents[0].text }}\n"
    path = tmp_path / "own.jinja"
    path.write_text(text)
    trusted = jinja2.Template(text)
    for template in (text, path, str(path), trusted):
        compiled = compile_schema(Television, codec, template=template)
        (prompt,) = compiled.encode(["LG"])
        assert text_of(codec, prompt.instruction) == "television: "
        assert text_of(codec, prompt.documents[0]) == "LG and again LG"


# The compiled object


def test_compiling_is_cached_and_the_result_frozen(codec: TextCodec) -> None:
    compiled = compile_schema(Television, codec)
    assert compile_schema(Television, codec, format="json") is compiled
    assert compile_schema(Television, codec, format="yaml") is not compiled
    with pytest.raises(AttributeError):
        compiled.category = "radio"  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        compiled.stop.next_state[0, 0] = 1


def test_class_settings_choose_format_and_template(codec: TextCodec) -> None:
    class Tea(AttrSchema, category="green tea", format="xml", template="generic"):
        variety: str | None = None

    compiled = compile_schema(Tea, codec)
    assert compiled.format.name == "xml"
    assert "Subject: green tea." in text_of(codec, compiled.instruction)
    assert compile_schema(Tea, codec, format="yaml").format.name == "yaml"


def test_names_that_look_the_same_in_a_format(codec: TextCodec) -> None:
    class Shoe(AttrSchema):
        a: str | None = attr(title="Shoe type")
        b: str | None = attr(title="Shoe-type")

    compile_schema(Shoe, codec, format="json")
    with pytest.raises(SchemaError, match="Shoe"):
        compile_schema(Shoe, codec, format="xml")


def test_unknown_format_and_preset(codec: TextCodec) -> None:
    with pytest.raises(ValueError, match="json"):
        compile_schema(Television, codec, format="toml")
    with pytest.raises(ValueError, match="isolated"):
        compile_schema(Television, codec, decoding="fast")


@pytest.mark.parametrize(
    "settings",
    [
        {"layout": "branched", "slots": "causal"},
        {"layout": "autoregressive", "slots": "causal"},
        {"layout": "sideways"},
        {"documents_per_prompt": 0},
        {"documents_per_prompt": None},
        {"k_max": 0},
        {"batch_size": "big"},
        {"temperature": -1},
        {"top_p": 0},
        {"max_retries": -1},
    ],
    ids=str,
)
def test_contradictory_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        DecodingConfig(**settings)


def test_presets() -> None:
    paper = resolve_decoding("paper")
    assert (paper.layout, paper.documents, paper.slots) == ("gapped", "stacked", "causal")
    assert (paper.documents_per_prompt, paper.k_max, paper.max_retries) == (6, 30, 0)
    assert resolve_decoding(None) == PRESETS["isolated"] == DecodingConfig()


def test_presets_with_changes(codec: TextCodec) -> None:
    changed = resolve_decoding("paper:documents_per_prompt=2:k_max=none:temperature=0.5")
    assert changed == replace(PRESETS["paper"], documents_per_prompt=2, k_max=None, temperature=0.5)
    own = compile_schema(Television, codec, decoding=changed).prompt
    assert own == compile_schema(Television, codec, decoding=changed, template="paper").prompt
    gapped = compile_schema(Television, codec, decoding="isolated:layout=gapped").prompt
    assert gapped == compile_schema(Television, codec, template="verbatim").prompt


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fast", "must be one of isolated, paper, autoregressive, not 'fast'"),
        ("isolated:layuot=gapped", "not 'layuot=gapped'"),
        ("isolated:gapped", "NAME=VALUE"),
        ("isolated:slots=causal", 'use layout="gapped"'),
        ("isolated:temperature=hot", "temperature must be a number, not 'hot'"),
        ("isolated:seed=x", "seed must be an integer, not 'x'"),
    ],
)
def test_changes_that_do_not_fit_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        resolve_decoding(text)


def unicode_texts() -> st.SearchStrategy[str]:
    return st.text(max_size=40)


@given(unicode_texts())
def test_any_document_can_be_encoded(text: str) -> None:
    codec = _small_codec()
    compiled = compile_schema(Television, codec)
    (prompt,) = compiled.encode([text])
    assert text_of(codec, prompt.documents[0]) == clean_document(text, "</product")


def _small_codec() -> TextCodec:
    return next(_codecs())


def _codecs() -> Iterator[TextCodec]:
    if "codec" not in _MADE:
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=256, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator([], trainer)
        _MADE["codec"] = TextCodec(tokenizer)
    yield _MADE["codec"]


_MADE: dict[str, TextCodec] = {}


def test_declaring_and_compiling_never_import_torch() -> None:
    folder = resource_dir("embedded")
    code = f"""
import sys
import schemax
class Shoe(schemax.AttrSchema):
    brand: str | None = None
schemax.compile_schema(Shoe, {str(folder)!r}).encode(["Crocs"])
loaded = {{"torch", "transformers"}} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
