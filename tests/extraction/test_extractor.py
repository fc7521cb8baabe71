"""Products in, instances out: the whole way, with bad input on it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest
import tokenizers
import torch
from conftest import TITLES, Small, tiny_model
from pydantic import BaseModel, create_model, field_validator
from seams import forget_formats, pass_tokens, replaced
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from schemax import (
    AttrSchema,
    DecodingConfig,
    Extraction,
    ExtractionError,
    Extractor,
    InputError,
    ModelError,
    SchemaError,
    attr,
    extract,
    load_schema,
    schema_names,
)
from schemax.compiler import TextCodec
from schemax.formats import OutputFormat, register_format


class Loose(AttrSchema, category="television"):
    """Whatever a random model writes is a value of it."""

    brand: str | None = attr("Manufacturer", k_max=6)
    model: str | None = attr(k_max=6)


@pytest.fixture(scope="module")
def fast(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")


@pytest.fixture(scope="module")
def extractor(codec: TextCodec, fast: PreTrainedTokenizerFast) -> Extractor:
    return Extractor(tiny_model("qwen3", codec.vocab_size), fast, format="yaml")


@pytest.fixture(scope="module")
def folder(
    codec: TextCodec, fast: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_model("qwen3", codec.vocab_size).save_pretrained(path)
    fast.save_pretrained(path)
    return path


def test_instances_in_order(extractor: Extractor) -> None:
    found = extractor.extract(TITLES, Loose)
    assert [type(item) for item in found] == [Loose] * len(TITLES)
    stream = list(extractor.stream(TITLES, Loose))
    assert sorted(item.index for item in stream) == list(range(len(TITLES)))
    for item in stream:
        assert item.value == found[item.index]
        assert list(item.fields) == ["brand", "model"]
        field = item.fields["brand"]
        assert field.finish_reason in ("stop", "eos", "length")
        assert 1 <= field.tokens <= 12
        assert item.steps >= 1


def test_a_class_extracts_itself(extractor: Extractor) -> None:
    found = Loose.extract(TITLES, extractor=extractor, format="json")
    assert found == extractor.extract(TITLES, Loose, format="json")
    assert {type(value) for value in found} == {Loose}


def test_products_of_every_shape(extractor: Extractor) -> None:
    rows = [
        {"id": 7, "category": "tv", "title": "LG", "size": 55, "weight": None, "ports": ["a", 1]},
        {"title": "LG"},
        "LG",
    ]
    first, second, third = sorted(extractor.stream(rows, Loose), key=lambda item: item.index)
    assert first.document_id == "7"
    assert second.document_id is None
    # A single value is shown alone, so these are the same document.
    assert second.value == third.value
    named = list(extractor.stream(rows[:1], Loose, text="title"))
    assert named[0].value == third.value


BAD = [
    ("", "empty"),
    ("  \n\t ", "empty"),
    (None, "NoneType"),
    (12, "int"),
    ({"id": 1}, "empty"),
    ({"title": None}, "empty"),
    ({"title": {"nested": 1}}, "dict"),
    ({"title": [["nested"]]}, "list"),
    ([], "list"),
]


@pytest.mark.parametrize(("product", "reason"), BAD, ids=str)
def test_bad_rows_do_not_stop_the_rest(extractor: Extractor, product: Any, reason: str) -> None:
    rows = ["LG", product, "Sony"]
    with pytest.raises(ExtractionError, match="1 of 3") as caught:
        extractor.extract(rows, Loose)
    assert [item.value is None for item in caught.value.extractions] == [False, True, False]
    assert reason in caught.value.extractions[1].errors[0].message
    values = extractor.extract(rows, Loose, on_error="null")
    assert [type(value) for value in values] == [Loose, type(None), Loose]


def test_records_without_the_text_fields(extractor: Extractor) -> None:
    rows = [{"title": "LG", "price": 3}, {"name": "Sony"}]
    items = sorted(extractor.stream(rows, Loose, text=("title",)), key=lambda item: item.index)
    assert items[0].ok
    assert "no title; it has name" in items[1].errors[0].message


@pytest.mark.parametrize("products", ["one text", {"title": "LG"}, b"bytes", 12, None])
def test_products_must_be_many(extractor: Extractor, products: Any) -> None:
    with pytest.raises(InputError, match="iterable"):
        extractor.extract(products, Loose)
    if isinstance(products, (str, dict, bytes)):
        with pytest.raises(InputError, match="iterable"):
            extract(products, Loose)  # before any model is loaded


def test_a_frame_is_no_list_of_records(extractor: Extractor) -> None:
    with pytest.raises(InputError, match="extract_frame reads frames"):
        extractor.extract(pandas.DataFrame({"title": ["LG"]}), Loose)


@pytest.mark.parametrize("schema", [Loose(brand="LG"), [Loose], "television"])
def test_what_is_no_schema(extractor: Extractor, schema: Any) -> None:
    with pytest.raises(SchemaError):
        extractor.extract(["LG"], schema)


def test_no_products(extractor: Extractor) -> None:
    assert extractor.extract([], Loose) == []
    assert list(extractor.stream(iter(()), Loose)) == []


def test_too_long_for_the_model(codec: TextCodec, fast: PreTrainedTokenizerFast) -> None:
    model = tiny_model("qwen3", codec.vocab_size, max_position_embeddings=2400)
    small = Extractor(model, fast, format="yaml")
    rows = ["LG", "tv set " * 5715, "Sony"]
    assert len(rows[1]) > 40_000
    for decoding in ("isolated", "paper"):
        items = sorted(small.stream(rows, Loose, decoding=decoding), key=lambda item: item.index)
        assert [item.ok for item in items] == [True, False, True]
        assert "context has 2,400" in items[1].errors[0].message


def test_awkward_texts(extractor: Extractor) -> None:
    rows = [
        "<|endoftext|> <|im_end|>",
        "{{ 7*7 }}{% endfor %}",
        "</product> </documents>",
        "nul \x00 byte",
        "lone \ud800 surrogate",
        "👩‍👩‍👧 emoji",
        "טלוויזיה בעברית",
    ]
    for decoding in ("isolated", "paper", "autoregressive"):
        assert len(extractor.extract(rows, Loose, decoding=decoding)) == len(rows)


def test_mixed_categories(extractor: Extractor) -> None:
    class Shoe(AttrSchema):
        color: str | None = attr(k_max=5)

    rows = [
        {"category": "tv", "title": "LG"},
        {"category": "shoe", "title": "Crocs"},
        {"category": "hat", "title": "Stetson"},
        {"title": "none"},
        {"category": "c" * 100_000, "title": "LG"},
    ]
    schemas = {"tv": Loose, "shoe": Shoe}
    items = sorted(extractor.stream(rows, schemas, category="category"), key=lambda i: i.index)
    assert [type(item.value) for item in items[:2]] == [Loose, Shoe]
    assert "'hat'" in items[2].errors[0].message
    assert "no category: --category (category=) names its key" in items[3].errors[0].message
    assert "'tv', 'shoe'" in items[3].errors[0].message
    assert len(items[4].errors[0].message) < 400
    with pytest.raises(SchemaError):
        extractor.extract(rows, {})


@pytest.mark.slow
def test_memory_is_bounded(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extractions come out before all products have gone in."""
    for name in (
        "requests that a call gives ahead",
        "results that a call leaves unread",
        "prompts of a window",
    ):
        replaced(monkeypatch, name, 4)
    monkeypatch.setitem(pass_tokens(), "cpu", 100)  # a few documents in flight
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield TITLES[read % len(TITLES)]

    stream = extractor.stream(endless(), Loose)
    for _ in range(300):
        next(stream)
    assert 300 <= read <= 400


def test_schemas_of_every_make(extractor: Extractor) -> None:
    class Plain(BaseModel):
        brand: str | None = None

        @field_validator("brand")
        @classmethod
        def shout(cls, brand: str | None) -> str | None:
            return brand and brand.upper()

    made = create_model("Made", __base__=AttrSchema, brand=(str | None, attr(k_max=6)))
    document = AttrSchema.from_json_schema(
        {"title": "Doc", "type": "object", "properties": {"brand": {"type": "string"}}}
    )
    for schema in (Plain, made, document):
        (value,) = extractor.extract(["LG"], schema)
        assert isinstance(value, schema)
    found = extractor.extract(TITLES, Plain, decoding="isolated:temperature=3")
    brands = [value.brand for value in found if value.brand]
    assert brands
    assert brands == [brand.upper() for brand in brands]


def test_failed_rows_carry_their_reason(extractor: Extractor) -> None:
    class Strict(AttrSchema):
        price: float = attr("Price", k_max=5)

    with pytest.raises(ExtractionError) as caught:
        extractor.extract(TITLES[:2], Strict)
    item = caught.value.extractions[0]
    assert item.value is None
    assert item.errors[0].field == "price"
    assert item.fields["price"].raw is not None


@pytest.mark.parametrize(
    "options",
    [{"format": "toml"}, {"decoding": "fast"}, {"on_error": "ignore"}, {"nonsense": 1}],
    ids=str,
)
def test_bad_options_are_named_at_once(extractor: Extractor, options: dict[str, Any]) -> None:
    with pytest.raises(
        (ValueError, TypeError), match=next(iter(map(str, options.values()))) + "|nonsense"
    ):
        extractor.extract(["LG"], Loose, **options)
    with pytest.raises(TypeError, match=r"no option 'decodng', perhaps 'decoding'; it has text, "):
        list(extractor.stream(["LG"], Loose, **{"decodng": "paper"}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not both"):
        extract(["LG"], Loose, model="x", extractor=extractor)


def test_class_settings_win_over_the_extractor(extractor: Extractor) -> None:
    class Tagged(Loose, format="xml"):
        pass

    assert extractor.compile(Loose).format.name == "yaml"
    assert extractor.compile(Tagged).format.name == "xml"
    assert extractor.compile(Tagged, format="json").format.name == "json"


def test_progress_goes_to_stderr(extractor: Extractor, capsys: pytest.CaptureFixture[str]) -> None:
    extractor.extract(TITLES, Loose, show_progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "7 of 7 documents" in captured.err
    assert "\r" not in captured.err


@pytest.mark.slow
def test_a_format_of_one_s_own(
    extractor: Extractor, lines_format: OutputFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_formats(monkeypatch)
    register_format("lines", lines_format)
    compiled = extractor.compile(Loose, format="lines")
    assert compiled.key_texts == (("brand =", "model ="),)
    for decoding in ("isolated", "paper", "autoregressive"):
        values = extractor.extract(TITLES[:3], Loose, format="lines", decoding=decoding)
        assert all(isinstance(value, Loose) for value in values)
        assert values == extractor.extract(
            TITLES[:3], Loose, format=lines_format, decoding=decoding
        )


# Loading


@pytest.mark.slow
def test_from_pretrained_and_by_name(folder: Path, extractor: Extractor) -> None:
    loaded = Extractor.from_pretrained(folder, format="yaml", device="cpu")
    assert loaded.model.dtype == torch.float32
    assert loaded.extract(TITLES, Loose) == extractor.extract(TITLES, Loose)
    assert extract(TITLES, Loose, model=folder, format="yaml") == extractor.extract(TITLES, Loose)
    half = Extractor.from_pretrained(folder, dtype="bfloat16")
    assert half.model.dtype == torch.bfloat16


def test_schemax_model_names_the_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch, extractor: Extractor
) -> None:
    monkeypatch.setenv("SCHEMAX_MODEL", str(folder))
    assert Loose.extract(TITLES[:2], format="yaml") == extractor.extract(TITLES[:2], Loose)
    assert Extractor.default() is Extractor.default()
    with Extractor.default() as closed:
        pass
    assert closed.is_closed
    assert not Extractor.default().is_closed


def test_a_template_travels_with_the_weights(folder: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    (copy / "prompt.jinja").write_text("Own: {{ documents[0].text }}\n")
    own = Extractor.from_pretrained(copy)
    compiled = own.compile(Loose)
    assert compiled.prompt.instruction == "Own: "
    assert own.compile(Loose, template="generic").prompt.instruction.startswith("Fill in")
    # The paper's prompt is for models that know none.
    alone = own.compile(Loose, decoding="paper:documents_per_prompt=1")
    assert alone.prompt.instruction == "Own: "
    papers = Extractor.from_pretrained(folder).compile(Loose, decoding="paper")
    assert papers.prompt.instruction.startswith("You are an expert at extracting product details.")
    assert "a key for each input product ID" in papers.prompt.instruction


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("config.json", "config.json"),
        ("tokenizer.json", "tokenizer.json"),
        ("model.safetensors", "safetensors"),
    ],
)
def test_incomplete_model_folders(folder: Path, tmp_path: Path, missing: str, reason: str) -> None:
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    (copy / missing).unlink()
    with pytest.raises(ModelError, match=reason):
        Extractor.from_pretrained(copy)


def test_models_that_cannot_be_run(codec: TextCodec, fast: PreTrainedTokenizerFast) -> None:
    from transformers import BertConfig, BertModel

    settings = {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": codec.vocab_size}
    with pytest.raises(ModelError, match="head"):
        Extractor(BertModel(BertConfig(num_attention_heads=2, **settings)), fast)
    with pytest.raises(ModelError, match="vocabulary"):
        Extractor(tiny_model("llama", 100), fast)
    with pytest.raises(ModelError, match="fast tokenizer"):
        Extractor(tiny_model("llama", codec.vocab_size), tokenizers)


@pytest.mark.slow
def test_dynamic_scaling_is_plain_within_the_context(
    codec: TextCodec, fast: PreTrainedTokenizerFast, small: Any
) -> None:
    parameters = {"rope_type": "default", "rope_theta": 10000.0}
    dynamic = {**parameters, "rope_type": "dynamic", "factor": 2.0}
    found = []
    for rope in (parameters, dynamic):
        model = tiny_model("llama", codec.vocab_size, rope_parameters=rope)
        items = Extractor(model, fast).stream(TITLES, small)
        found.append({item.index: [f.raw for f in item.fields.values()] for item in items})
    assert found[0] == found[1]


def test_weights_of_another_model(folder: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    tensors.pop("model.layers.1.self_attn.q_proj.weight")
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="q_proj"):
        Extractor.from_pretrained(copy)
    (copy / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ModelError, match="model"):
        Extractor.from_pretrained(copy)


def test_outputs_that_were_cut_off_say_so(extractor: Extractor) -> None:
    """Autoregressive: what is missing at the end of the budget is not null, but truncated."""
    stream = extractor.stream(TITLES, Loose, decoding="autoregressive")
    cut = 0
    for item in stream:
        for error in item.errors:
            assert "budget" in error.message
            cut += 1
    assert cut > 3


@pytest.mark.parametrize("documents", ["isolated", "stacked"])
@pytest.mark.parametrize("formats", [("json", "json"), ("json", "yaml"), ("xml", "yaml")])
def test_categories_share_passes(
    extractor: Extractor,
    monkeypatch: pytest.MonkeyPatch,
    documents: Any,
    formats: tuple[str, str],
) -> None:
    """Whatever their formats are: every slot has its own stop rule."""

    class Shoe(AttrSchema, format=formats[0]):
        color: str | None = attr(k_max=5)

    class Tv(Loose, format=formats[1]):
        pass

    sizes = []
    usual = extractor.model.run_batch

    def counted(batch: Any, cache: Any) -> Any:
        if batch.write.rows is not None:
            sizes.append(len(batch.write.rows))
        return usual(batch, cache)

    rows = [{"category": name, "title": t} for t in TITLES[:3] for name in ("tv", "shoe")]
    decoding = DecodingConfig(max_retries=0, documents=documents)
    schemas: dict[str, Any] = {"tv": Tv, "shoe": Shoe}
    monkeypatch.setattr(extractor.model, "run_batch", counted)
    together = extractor.extract(rows, schemas, category="category", decoding=decoding)
    assert sizes == [6]
    tvs = extractor.extract(rows[0::2], Tv, decoding=decoding)
    shoes = extractor.extract(rows[1::2], Shoe, decoding=decoding)
    assert together == [item for pair in zip(tvs, shoes, strict=True) for item in pair]


# --- as a stream ---------------------------------------------------------------------------------


def test_unreadable_records_come_out_as_they_are_met(extractor: Extractor) -> None:
    pulled = 0

    def records() -> Iterator[Any]:
        nonlocal pulled
        for _ in range(50_000):
            pulled += 1
            yield 7

    stream = extractor.stream(records(), Loose)
    item = next(stream)
    assert item.value is None
    assert item.errors
    assert pulled <= 2048
    stream.close()


@pytest.mark.parametrize("after", [0, 1, 70, 300])
def test_an_input_that_fails_loses_nothing_that_was_read(extractor: Extractor, after: int) -> None:
    """Its error comes behind all extractions of what came before."""

    def records() -> Iterator[Any]:
        for number in range(after):
            yield f"{TITLES[number % 7]} {number % 20}" if number % 10 else ""
        raise OSError("the disk is gone")

    found = []
    stream = extractor.stream(records(), Loose)
    with pytest.raises(OSError, match="the disk is gone"):
        found.extend(item.index for item in stream)
    while len(found) < after and (item := next(stream, None)) is not None:
        found.append(item.index)
    assert sorted(found) == list(range(after))


@pytest.mark.slow
def test_streams_that_are_closed_early_end_their_thread(extractor: Extractor) -> None:
    def threads() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == "schemax-decoding"]

    stream = extractor.stream((f"LG {number}" for number in range(100_000)), Loose)
    assert next(stream).value is not None
    assert len(threads()) == 1
    stream.close()
    assert threads() == []
    abandoned = extractor.stream((f"LG {number}" for number in range(100_000)), Loose)
    next(abandoned)
    del abandoned
    gc.collect()
    assert threads() == []
    assert len(extractor.extract(TITLES, Loose)) == len(TITLES)


def test_the_input_is_read_on_the_caller_s_thread(extractor: Extractor) -> None:
    """Users' iterators and models are touched by no other thread."""
    seen = set()

    class Watched(AttrSchema):
        brand: str | None = attr(k_max=5)

        @field_validator("brand")
        @classmethod
        def watched(cls, value: Any) -> Any:
            seen.add(threading.get_ident())
            return value

    def records() -> Iterator[str]:
        for title in TITLES * 20:
            seen.add(threading.get_ident())
            yield title

    assert len(list(extractor.stream(records(), Watched))) == 20 * len(TITLES)
    assert seen == {threading.get_ident()}


def test_memory_is_bounded_by_what_is_not_read(extractor: Extractor) -> None:
    """Extractions that nobody takes stop the input."""
    pulled = 0

    def records() -> Iterator[str]:
        nonlocal pulled
        while True:
            pulled += 1
            yield f"LG {pulled}"

    stream = extractor.stream(records(), Loose)
    next(stream)
    before = pulled
    time.sleep(0.5)
    assert pulled == before <= 4096
    stream.close()


def test_errors_travel_between_processes(extractor: Extractor) -> None:
    import pickle

    def travelled(error: Exception) -> Any:
        return pickle.loads(pickle.dumps(error))

    schema_error = travelled(SchemaError("Shoe", "size", "is odd"))
    assert (schema_error.field, str(schema_error)) == ("size", "Shoe.size: is odd")
    assert str(travelled(InputError("no text"))) == "no text"
    with pytest.raises(ExtractionError) as caught:
        extractor.extract(["LG", ""], Loose)
    failed = travelled(caught.value)
    assert str(failed) == str(caught.value)
    assert len(failed.extractions) == 2


def test_unknown_devices_and_dtypes(folder: Path) -> None:
    with pytest.raises(ModelError, match="device"):
        Extractor.from_pretrained(folder, device="abacus")
    with pytest.raises(ModelError, match="dtype"):
        Extractor.from_pretrained(folder, dtype="int3")
    with pytest.raises(ModelError, match="nowhere"):
        Extractor.from_pretrained("./nowhere/at/all")


# Ready-made schemas


@pytest.mark.slow
@pytest.mark.parametrize("name", schema_names())
def test_ready_made_schemas_compile(extractor: Extractor, name: str) -> None:
    schema = load_schema(name)
    compiled = extractor.compile(schema)
    assert {attribute.path[0] for attribute in compiled.attributes} == set(schema.model_fields)
    assert compiled.num_slots >= len(schema.model_fields)


def test_ready_made_schemas_have_names() -> None:
    assert {"television", "shoes", "tea"} <= set(schema_names())
    assert load_schema("Breakfast Cereal") is not None
    with pytest.raises(InputError, match="television"):
        load_schema("radio")
    with pytest.raises(InputError, match="'televison'; did you mean 'television'"):
        load_schema("televison")
    with pytest.raises(InputError, match="television"):
        load_schema("../pyproject")


@pytest.mark.slow
def test_public_names_import_without_torch() -> None:
    code = "import sys; from schemax import *; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_declarations_import_little() -> None:
    """Declarations import no more than they need, and the bare package not even Pydantic."""
    late = ["numpy", "jinja2", "jsonschema", "pint", "babel", "dateparser", "rapidfuzz"]
    code = (
        "import sys; import schemax; assert 'pydantic' not in sys.modules;"
        "assert set(schemax.__all__) <= set(dir(schemax));"
        "schemax.AttrSchema, schemax.attr;"
        f"assert not {{'schemax.compiler', *{late}}} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_extraction_is_what_the_notes_say(extractor: Extractor) -> None:
    (item,) = extractor.stream(["LG"], Small, decoding=DecodingConfig(max_retries=0))
    assert isinstance(item, Extraction)
    assert item.index == 0
    row = item.to_row(details=True)
    assert set(row) == {"id", "index", "attributes", "errors", "fields"}
