"""The engine on a pretrained model: what holds for random weights, and what these cannot show."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from decoding import TEMPLATE, assert_right, filled, follow_branches, run
from test_alternatives import brute
from test_lists import check, prompts_with

from schemax import AttrSchema, DecodingConfig, Extractor, attr, doctor
from schemax.compiler import compile_schema
from schemax.formats import format_names
from schemax.runtime.models.loading import load
from schemax.runtime.models.packed import described, num_bytes, unpack
from schemax.tokens import PromptIds, SlotOutput

pytestmark = pytest.mark.llm

LISTINGS = [
    "Northfell Women's Tamarack Waterproof Hiking Boot, Dark Olive, 8.5 M US",
    "LG OLED55C3 55-inch 4K smart TV with 4 HDMI ports, 2 USB ports, Wi-Fi, black, $1,299.99",
    'TCL 32S327 32" 1080p Roku TV (2019 model)\nNo returns. {see page} <b>Sale</b>',
    "Kaffee Bohne ganz, 1 kg, dunkle Röstung, 12,99 €",
]


class Listing(AttrSchema, category="product"):
    """Short budgets."""

    brand: str | None = attr("Manufacturer", k_max=8)
    size: float | None = attr("Diagonal, inches", k_max=6)
    smart: bool | None = attr("Has apps", k_max=4)
    resolution: Literal["720p", "1080p", "4K"] | None = attr("Resolution class")


class Ports(AttrSchema, category="product"):
    """One list, in two phases."""

    ports: list[str] = attr("Connectors", long=True, default_factory=list, k_max=8)
    brand: str | None = attr("Manufacturer", k_max=8)


@pytest.fixture(scope="module")
def extractor(smollm2: Path) -> Extractor:
    return Extractor.from_pretrained(smollm2, device="cpu", dtype="float32")


def generated(model: Any, prompt: PromptIds, key: tuple[int, ...], tokens: int) -> list[int]:
    """transformers' own greedy continuation of one attribute's plain request."""
    head = [*prompt.instruction, *prompt.documents[0], *prompt.opening, *key]
    request = torch.tensor([head])
    found = model.model.generate(
        request,
        attention_mask=torch.ones_like(request),
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=-1,
        pad_token_id=0,
    )
    ids: list[int] = found[0, len(head) :].tolist()
    return ids


def assert_plain(model: Any, prompt: PromptIds, slots: tuple[SlotOutput, ...]) -> int:
    """Every slot has the tokens of its plain request; returns how many slots there are."""
    for key, slot, k_max in zip(prompt.keys[0], slots, prompt.k_max, strict=True):
        assert list(slot.ids) == generated(model, prompt, key, k_max)[: len(slot.ids)]
        assert slot.finish_reason != "length" or len(slot.ids) == k_max
    return len(slots)


@pytest.mark.parametrize("format", format_names())
def test_tokens_are_those_of_generate(extractor: Extractor, format: str) -> None:
    config = DecodingConfig(constrain="nothing", max_retries=0, batch_size=3)
    compiled = compile_schema(
        Listing, extractor.tokenizer, format=format, template=TEMPLATE, decoding=config
    )
    texts = LISTINGS[:2]
    prompts = list(compiled.encode(texts))
    outputs = run(extractor.model, compiled, texts)
    compared = [
        assert_plain(extractor.model, prompt, slots)
        for prompt, slots in zip(prompts, outputs, strict=True)
    ]
    assert compared == [4, 4]


def test_items_of_lists_are_those_of_generate(extractor: Extractor) -> None:
    config = DecodingConfig(constrain="nothing", max_retries=0)
    compiled = compile_schema(Ports, extractor.tokenizer, template=TEMPLATE, decoding=config)
    prompts = prompts_with(compiled, LISTINGS[1:3], (2, 1))
    compared = []
    for prompt, output in zip(prompts, filled(extractor.model, compiled, prompts), strict=True):
        head = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
        compared.append(check(extractor.model.model, head, compiled.slots, output.slots))
    assert min(compared) > 0


def test_constrained_slots_equal_the_oracle(extractor: Extractor) -> None:
    """With the grammars that are on by default, retries included."""
    compiled = compile_schema(Listing, extractor.tokenizer, template=TEMPLATE)
    assert_right(extractor.model, compiled, LISTINGS[:1])


def test_branches_of_choices_by_brute_force(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probabilities of all choices, each of which a forward pass of its own gives as well."""

    class Choice(AttrSchema, category="product"):
        # Strictly: else choices that the model would rather not write are asked for as a text.
        resolution: Literal["720p", "1080p", "4K"] = attr("Resolution class", strict=True)

    follow_branches(monkeypatch, 1e-9)
    config = DecodingConfig()
    compiled = compile_schema(Choice, extractor.tokenizer, template=TEMPLATE, decoding=config)
    options: dict[str, Any] = {"template": TEMPLATE, "decoding": config, "html": "keep"}
    for item in extractor.stream(LISTINGS[1:3], Choice, **options):
        (prompt,) = compiled.encode([LISTINGS[1 + item.index]])
        (attribute,) = compiled.attributes
        expected = brute(compiled, extractor.model, prompt, 0, attribute)
        assert item.fields["resolution"].alternatives == pytest.approx(expected, abs=1e-3)


def test_the_doctor_finds_every_layout_exact(smollm2: Path) -> None:
    diagnosis = doctor(smollm2, device="cpu")
    assert diagnosis.ok, str(diagnosis)
    assert len(diagnosis.agreements) == 7
    assert all(found.exact for found in diagnosis.agreements), str(diagnosis)


def test_the_chat_template_and_the_ends(extractor: Extractor) -> None:
    """The prompt is what transformers makes of one message; `<|im_end|>` ends an output."""
    compiled = compile_schema(Listing, extractor.tokenizer)
    (prompt,) = compiled.encode(LISTINGS[:1])
    tokenizer = extractor.tokenizer
    ids = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    text = tokenizer.decode(ids)
    asked = text.split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
    plain = tokenizer.apply_chat_template(
        [{"role": "user", "content": asked}], tokenize=False, add_generation_prompt=True
    )
    assert text.startswith(plain)
    assert text[len(plain) :].strip() == "{"
    assert tokenizer.encode(plain) == ids[: len(tokenizer.encode(plain))]
    assert extractor.eos_ids == tuple(tokenizer.convert_tokens_to_ids(["<|im_end|>"]))


def test_numbers_are_cut_digit_by_digit(extractor: Extractor) -> None:
    """As the model was trained: no token of a space and a digit, nor of two digits."""
    tokens = extractor.tokenizer.tokenize("In 2024,  12 kg")
    assert [token for token in tokens if re.search(r"\d", token)] == list("202412")
    assert "ĠĠ" in tokens


@pytest.mark.release
def test_gguf_equals_safetensors(smollm2: Path, smollm2_gguf: Path) -> None:
    plain = load(smollm2, device="cpu", dtype="bfloat16")
    found = load(smollm2_gguf, device="cpu", dtype="bfloat16")
    expected = plain.model.state_dict()
    assert expected.keys() == found.model.state_dict().keys()
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    for text in LISTINGS:
        assert found.tokenizer.encode(text) == plain.tokenizer.encode(text)
    assert found.tokenizer.chat_template == plain.tokenizer.chat_template
    extracted = [
        Extractor(one.model, one.tokenizer).extract(LISTINGS[:2], Listing, on_error="null")
        for one in (plain, found)
    ]
    assert extracted[0] == extracted[1]


@pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="has no packed products"
)
@torch.inference_mode()
def test_a_gguf_file_keeps_its_four_bits(smollm2_gguf: Path) -> None:
    plain = load(smollm2_gguf, device="cpu", dtype="float32").model
    small = load(smollm2_gguf, device="cpu", quantization="int4").model
    assert described(small) == "210 modules in four bits, 2 modules in half precision"
    assert num_bytes(small) < num_bytes(plain) / 1.8
    ids = torch.tensor([plain.config.bos_token_id, *range(1_000, 1_200)])[None]
    expected, found = plain(input_ids=ids).logits, small(input_ids=ids).logits
    assert (found - expected).square().mean().sqrt() < 0.05 * expected.std()


def test_what_shares_a_pass_changes_nothing(extractor: Extractor) -> None:
    options: dict[str, Any] = {"on_error": "null"}
    together = extractor.extract(LISTINGS, Listing, **options)
    alone = [extractor.extract([text], Listing, **options)[0] for text in LISTINGS]
    assert together == alone


def test_values_are_typed_and_hold_no_debris(extractor: Extractor) -> None:
    """No control tokens, braces, tags or keys in values; every value within its type."""
    for format in format_names():
        for item in extractor.stream(LISTINGS, Listing, format=format):
            value = item.value
            assert value is not None
            assert isinstance(value.size, float | None)
            assert isinstance(value.smart, bool | None)
            assert value.resolution in (None, "720p", "1080p", "4K")
            if value.brand is not None:
                assert not re.search(r"[\x00-\x1f{}]|<\|?\w|</", value.brand), value.brand
                assert value.brand.casefold() not in ("brand", "product", "null")


def test_texts_copied_from_the_document_have_spans(extractor: Extractor) -> None:
    config = DecodingConfig(constrain="document")
    found = 0
    for item in extractor.stream(LISTINGS, Listing, decoding=config):
        text, field = LISTINGS[item.index], item.fields["brand"]
        if field.value is not None:
            assert field.span is not None
            assert text[field.span.start : field.span.end] == field.value
            found += 1
    assert found >= 2


@pytest.mark.release
def test_a_document_of_three_thousand_tokens(extractor: Extractor) -> None:
    """Equal to a plain request, though it is read in many pieces."""
    line = (
        "The box holds a manual, a cable, two screws and a card with the address of the seller.\n"
    )
    text = line * 155 + "Brand: Northfell\n"
    config = DecodingConfig(constrain="nothing", max_retries=0)

    class Brand(AttrSchema, category="product"):
        brand: str | None = attr("Manufacturer", k_max=8)

    compiled = compile_schema(Brand, extractor.tokenizer, decoding=config)
    (prompt,) = compiled.encode([text])
    assert len(prompt.documents[0]) > 3_000
    (slots,) = run(extractor.model, compiled, [text])
    assert_plain(extractor.model, prompt, slots)


def test_documents_in_flight_are_bounded(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two documents at a time hold the keys and values of two, however many there are."""
    config = DecodingConfig(batch_size=2, constrain="nothing", max_retries=0)
    compiled = compile_schema(Listing, extractor.tokenizer, decoding=config)
    (prompt,) = compiled.encode(LISTINGS[:1])
    counts: list[int] = []
    usual = extractor.model.run_batch

    def run_batch(batch: Any, cache: Any) -> Any:
        counts.append(len(batch.input_ids))
        return usual(batch, cache)

    monkeypatch.setattr(extractor.model, "run_batch", run_batch)
    run(extractor.model, compiled, LISTINGS[:1] * 6)
    own = len(prompt.documents[0]) + len(prompt.opening) + sum(map(len, prompt.keys[0]))
    assert max(counts) <= len(prompt.instruction) + 2 * own


# Adapters


@pytest.fixture(scope="module")
def adapter(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps on one answer."""
    peft = pytest.importorskip("peft")
    found = load(smollm2, device="cpu", dtype="float32")
    unpack(found.model)
    config = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
    tuned = peft.get_peft_model(found.model, config)
    ids = found.tokenizer(f'{LISTINGS[0]}\n  "brand": "Northfell",\n', return_tensors="pt")
    optimizer = torch.optim.AdamW([p for p in tuned.parameters() if p.requires_grad], lr=5e-4)
    for _ in range(2):
        tuned(**ids, labels=ids["input_ids"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    folder = tmp_path_factory.mktemp("adapter")
    tuned.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def logits_of(extractor: Extractor) -> Callable[[Any], torch.Tensor]:
    request = extractor.tokenizer(f'{LISTINGS[1]}\n  "brand": "', return_tensors="pt")

    def logits(model: Any) -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = model.float()(**request).logits
        return found

    return logits


@pytest.mark.release
def test_a_merged_adapter_is_one_that_stays_apart(
    smollm2: Path, adapter: Path, extractor: Extractor, logits_of: Any
) -> None:
    peft = pytest.importorskip("peft")
    plain = logits_of(extractor.model.model)
    merged = load(smollm2, device="cpu", dtype="float32", adapter=adapter)
    base = load(smollm2, device="cpu", dtype="float32")
    unpack(base.model)
    apart = logits_of(peft.PeftModel.from_pretrained(base.model, str(adapter)))
    found = logits_of(merged.model)
    change = (apart - plain).norm()
    assert change > 0.01 * plain.norm()
    assert (found - apart).norm() < 1e-3 * change
    tuned = Extractor(merged.model, merged.tokenizer)
    compiled = compile_schema(Listing, tuned.tokenizer, decoding="isolated:constrain=nothing")
    assert all(run(tuned.model, compiled, LISTINGS[:2]))


@pytest.mark.release
def test_in_bfloat16_a_short_run_is_kept(
    smollm2: Path, adapter: Path, extractor: Extractor, logits_of: Any
) -> None:
    """Two steps change most weights by less than bfloat16 can tell apart."""
    plain = logits_of(extractor.model.model)
    exact = load(smollm2, device="cpu", dtype="float32", adapter=adapter).model
    short = load(smollm2, device="cpu", dtype="bfloat16", adapter=adapter).model
    assert {weight.dtype for weight in short.parameters()} == {torch.bfloat16}
    base = extractor.model.model.state_dict()
    wanted, kept, lost = 0.0, 0.0, 0.0
    for name, weight in exact.state_dict().items():
        delta = weight - base[name]
        wanted += float((delta * delta).sum())
        kept += float((delta * (short.state_dict()[name].float() - base[name])).sum())
        lost += float((delta * (weight.bfloat16().float() - base[name])).sum())
    assert lost < 0.9 * wanted  # what rounding to the nearest leaves
    assert kept == pytest.approx(wanted, rel=0.05)
    change = logits_of(exact) - plain
    error = (logits_of(short) - plain - change).norm() / change.norm()
    assert error < 0.25


def test_serving(extractor: Extractor) -> None:
    """Rows of a server are those of the library."""
    httpx2 = pytest.importorskip("httpx2")
    from serving import served

    expected = extractor.extract(LISTINGS[:2], Listing, on_error="null")
    with served(extractor) as address:
        body = {"schema": Listing.json_schema(), "documents": LISTINGS[:2]}
        answer = httpx2.post(f"{address}/v1/extract", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    found = [row["attributes"] for row in answer.json()["rows"]]
    assert found == [one.model_dump(mode="json") for one in expected]
