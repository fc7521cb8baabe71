"""Texts that slots write stand in their documents: `constrain="document"`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from conftest import TITLES, combinations, slow_but
from constrained import TEMPLATE, forked
from decoding import assert_right, outputs_of, run
from extractive import is_edge, may_begin, texts_in
from grammar_walks import FORMATS, in_each_format
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field

from schemax import AttrSchema, attr
from schemax.attributes import compile_attributes
from schemax.base.resources import resource_dir
from schemax.compiler import CompiledSchema, TextCodec, compile_schema, load_codec
from schemax.compiler.extractive import Copying, DocumentReader, DocumentSource
from schemax.config import DecodingConfig, decoding_name, resolve_decoding
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.sampling import sampler
from schemax.tokens import FREE

Model = Callable[..., DecoderModel]

DOCUMENTS = [
    'Samsung 55" TV, 4K',
    "Kånken & Co <b>16 L</b> C:\\x",
    "日本緑茶100g — 2 袋\nSize: 55\n- x #1",
    "",
]


class Texts(AttrSchema):
    brand: str | None = attr(k_max=6)
    size: float | None = attr(k_max=5)
    note: str | None = attr(k_max=9)


def compiled_for(
    schema: Any, codec: TextCodec, name: str = "json", **config: Any
) -> CompiledSchema:
    settings = DecodingConfig(**{"constrain": "document", **config})
    return compile_schema(schema, codec, format=name, template=TEMPLATE, decoding=settings)


# --- the decoder is right ------------------------------------------------------------------------

WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.5, "top_p": 0.9, "seed": 3},
    {"layout": "gapped"},
    {"layout": "gapped", "slots": "causal", "temperature": 1.0},
    {"documents": "stacked", "documents_per_prompt": 2, "temperature": 1.5},
]


@combinations("name, config", FORMATS, WAYS, ids=str)
def test_decoding_equals_the_oracle(
    decoder_model: Model, codec: TextCodec, name: str, config: dict[str, Any]
) -> None:
    compiled = compiled_for(Texts, codec, name, **config)
    found = assert_right(decoder_model(), compiled, DOCUMENTS, 3)
    free = compiled_for(Texts, codec, name, **{**config, "constrain": "types"})
    assert found != run(decoder_model(), free, DOCUMENTS, 3)


@pytest.mark.parametrize("name", slow_but({"json"}, FORMATS))
def test_forks_equal_the_oracle(codec: TextCodec, name: str) -> None:
    assert_right(forked(codec), compiled_for(Texts, codec, name), DOCUMENTS, 3)


@in_each_format
def test_asking_before_the_choice_gives_the_same(
    decoder_model: Model, codec: TextCodec, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on devices whose memory is not the host's."""
    compiled = compiled_for(Texts, codec, name)
    usual = run(decoder_model(), compiled, DOCUMENTS, 3)
    monkeypatch.setattr(sampler, "SHARED", ())
    assert run(decoder_model(), compiled, DOCUMENTS, 3) == usual


# --- whatever is written stands there ------------------------------------------------------------


class Copied(AttrSchema):
    text: str | None = attr(k_max=40)
    other: str | None = attr(k_max=40)
    items: list[str] = attr(long=True, default_factory=list, max_length=2)


def written_texts(model: DecoderModel, compiled: CompiledSchema, document: str) -> list[str]:
    """Of all slots of free text that were written to their end, those of items included."""
    (found,) = outputs_of(model, compiled, [document])
    slots = [*found.slots[:2], *found.slots[2].items]
    texts = []
    for slot in slots:
        raw, complete = compiled.decode_slot(slot.ids)
        if complete and (text := compiled.format.unescape(raw)) is not None:
            assert isinstance(text, str)
            texts.append(text)
    return texts


HARD = [
    'a "quoted" 55" text, C:\\new\\x "',
    "</product> & <b>R&D</b> &amp; |x| # y: z",
    "\U0001f600 emoji \U0001f469\u200d\U0001f467 2\ufe0f\u20e3",
    "日本語のテキスト、緑茶100g。",
    "Cafe\u0301 crème Fjällräven ßa",
    "",
    " \t ",
    "one\ntwo\r\n\n  three \u2028four\tfive",
    "null true 55 5.5 - --- ~ 2024-01-02",
    "word " * 1000,
    "1" * 1500 + "x " + "a b" * 400,
]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("temperature", slow_but({2.0}, [0.0, 2.0]))
@pytest.mark.parametrize("document", HARD, ids=range(len(HARD)))
def test_texts_stand_in_hard_documents(
    decoder_model: Model, codec: TextCodec, name: str, temperature: float, document: str
) -> None:
    compiled = compiled_for(Copied, codec, name, temperature=temperature)
    known = texts_in(document) if len(document) < 1000 else None
    for text in written_texts(decoder_model(), compiled, document):
        assert text in document
        assert known is None or text in known


ODD = [*"aB1 \"\\&<>:#-,|\n'é日\U0001f600\u0301\t%"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@given(
    document=st.text(
        st.sampled_from(list("aB1 \"\\&<>:#-,|\n'é日\U0001f600\u0301\t%")), max_size=40
    )
)
@example(document="a: b")
@example(document="- a\n55")
def test_texts_stand_in_any_document(
    decoder_model: Model, codec: TextCodec, name: str, document: str
) -> None:
    compiled = compiled_for(Copied, codec, name, temperature=2.0)
    for text in written_texts(decoder_model(), compiled, document):
        assert text in texts_in(document.strip())


@in_each_format
def test_required_texts_of_nothing_are_free(
    decoder_model: Model, codec: TextCodec, name: str
) -> None:
    class Required(AttrSchema):
        text: str

    compiled = compiled_for(Required, codec, name, k_max=3, max_retries=0)
    for found in outputs_of(decoder_model(), compiled, ["", " \n"]):
        assert len(found.slots[0].ids) > 0


# --- readers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("document", [*DOCUMENTS, *HARD[:-2]], ids=range(13))
def test_allowed_tokens_are_those_that_may_follow(
    codec: TextCodec, name: str, document: str
) -> None:
    """Along random walks; `allowed` looks tokens up, `after` tries them, and so does the rule."""
    compiled = compiled_for(Texts, codec, name)
    copying = compiled.slots[0].copying
    assert isinstance(copying, Copying)
    reader = DocumentSource(tuple(codec.encode(document)), codec).reader(copying)
    chance = random.Random(5)
    for _ in range(6):
        state, data = reader.begin(()), b""
        while state is not None and state is not FREE:
            after = [reader.after(state, token) for token in range(codec.vocab_size)]
            allowed = np.flatnonzero(reader.allowed(state)).tolist()
            assert allowed == [n for n, one in enumerate(after) if one is not None]
            for token in chance.sample(range(codec.vocab_size), 60):
                longer = data + codec.token_bytes[token]
                # Where a plain text may end is the grammar's business.
                if longer != data and longer[:1] == b" " and b"\n" not in longer:
                    assert (token in allowed) == may_begin(longer, document.strip(), name, True)
            if not allowed:
                break
            token = chance.choice(allowed)
            state, data = after[token], data + codec.token_bytes[token]
            if state is not None and state is not FREE:
                assert_ahead(reader, state)


def assert_ahead(reader: DocumentReader, state: Any) -> None:
    """What a document goes on with may follow, token by token."""
    ids = reader.ahead(state, 5)
    assert ids[:2] == reader.ahead(state, 2)
    for token in ids:
        assert state is not FREE
        state = reader.after(state, token)
        assert state is not None


def test_a_document_goes_on_as_it_is_cut(codec: TextCodec) -> None:
    compiled = compiled_for(Texts, codec)
    copying = compiled.slots[0].copying
    for document in (TITLES[2], DOCUMENTS[1]):
        reader = DocumentSource(tuple(codec.encode(document)), codec).reader(copying)
        ids = codec.encode(f' "{document}"'.replace("\\", "\\\\"))
        state: Any = reader.begin(ids[:3])
        assert reader.ahead(state, 9) == tuple(ids[3:12])
    assert reader.ahead(reader.begin(()), 9) == ()


def test_a_large_vocabulary_is_looked_up(codec: TextCodec) -> None:
    large = load_codec(resource_dir("embedded"))
    compiled = compiled_for(Texts, large)
    reader = DocumentSource(tuple(large.encode(TITLES[2])), large).reader(compiled.slots[0].copying)
    for text in (' "', ' "A very', ' "televis', ' "3'):
        state = reader.begin(large.encode(text))
        allowed = np.flatnonzero(reader.allowed(state)).tolist()
        tried = [n for n in range(large.vocab_size) if reader.after(state, n) is not None]
        assert allowed == tried


def test_edges() -> None:
    joined = ["ab", "Ab", "12", "äß", "e\u0301", "١٢"]
    apart = ["1a", "a1", "a ", "a-", "日本", "あa", "m²", "\U0001f600a"]
    pairs = dict.fromkeys(joined, False) | dict.fromkeys(apart, True)
    assert {pair: is_edge(*pair) for pair in pairs} == pairs
    assert "55" in texts_in("55inch")
    assert "Timber" not in texts_in("Timberland")


# --- what is bound -------------------------------------------------------------------------------


class Several(AttrSchema):
    free: str | None = None
    told: str | None = attr(extractive=True)
    never: str | None = attr(extractive=False)
    number: float | None = None
    literal: int | None = attr(strict=True)
    short: str | None = Field(None, max_length=5)
    choice: Literal["red", "blue"] | None = None
    either: int | str | None = None
    named: Literal["x"] | str | None = None
    flag: bool | None = None
    tags: list[str] = attr(default_factory=list)
    many: list[str] = attr(long=True, default_factory=list)


@in_each_format
def test_free_texts_are_bound(codec: TextCodec, name: str) -> None:
    def bound(**config: Any) -> set[str]:
        compiled = compiled_for(Several, codec, name, **config)
        specs = zip(compiled.attributes, compiled.slots, strict=True)
        found = {attribute.name for attribute, spec in specs if spec.copying is not None}
        (items,) = (spec.follow_ups for spec in compiled.slots if spec.is_count)
        if items.fields.specs[0].copying is not None:  # type: ignore[attr-defined]
            found.add("many")
        text = compiled.slots[6].follow_ups.free_text  # type: ignore[union-attr]
        assert text is None or text.copying is None
        return found

    numbers = {"number", "either"} if name == "json" else set()
    assert bound() == {"free", "told", "many", *numbers}
    assert bound(constrain=None) == bound(constrain="types") == {"told"}


def test_what_is_not_constrained_is_not_bound(codec: TextCodec) -> None:
    for config in ({"constrain": "nothing"}, {"layout": "autoregressive"}):
        assert all(spec.copying is None for spec in compiled_for(Texts, codec, **config).slots)


def test_extractive_goes_through_json_schema() -> None:
    again = AttrSchema.from_json_schema(Several.json_schema())
    for schema in (Several, again):
        found = {one.name: one.extractive for one in compile_attributes(schema)}
        assert [found[name] for name in ("free", "told", "never")] == [None, True, False]


def test_nested_models_hand_it_on() -> None:
    class Inner(AttrSchema):
        one: str | None = None
        other: str | None = attr(extractive=False)

    class Outer(AttrSchema):
        inner: Inner | None = attr(extractive=True)

    assert [one.extractive for one in compile_attributes(Outer)] == [True, False]


def test_settings_as_text() -> None:
    config = resolve_decoding("isolated:constrain=document")
    assert config == DecodingConfig(constrain="document")
    assert decoding_name(config) == "isolated:constrain=document"
    assert resolve_decoding(decoding_name(config)) == config
    assert resolve_decoding("paper").constrain == "nothing"
    assert resolve_decoding("isolated").constrain is None
    with pytest.raises(
        ValueError, match="constrain must be one of 'document', 'types', 'nothing', None"
    ):
        resolve_decoding("isolated:constrain=true")


def test_a_model_s_own_decoding_is_the_default(decoder_model: Model, saved_model: Any) -> None:
    from schemax import Extractor

    extractor = Extractor.from_pretrained(saved_model)
    extractor.defaults = replace(extractor.defaults, is_trained=True)

    def bound(decoding: str | None = None) -> bool:
        return extractor.compile(Texts, decoding=decoding).slots[0].copying is not None

    assert not bound()
    assert bound("isolated:constrain=document")
    own = DecodingConfig(constrain="document")
    trained = replace(extractor.defaults.trained, decoding=own)
    extractor.defaults = replace(extractor.defaults, trained=trained)
    assert bound()
    assert bound("isolated:min_probability=0")
    assert not bound("isolated:constrain=types")
    assert not bound("paper")
