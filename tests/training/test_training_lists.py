"""Lists in two phases are trained as they are decoded, and their labels are read."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import jsonl
from conftest import TITLES
from decoding import TEMPLATE, filled
from test_lists import PLAIN, Port, Television, prompts_with
from typer.testing import CliRunner

from schemax.attributes import attr
from schemax.commands.cli import app
from schemax.compiler import TextCodec, compile_schema
from schemax.compiler.skeleton import all_labels
from schemax.config import DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.labelled_schemas import as_declared, note_misfits
from schemax.evaluation.scores import labelled_texts
from schemax.extraction.schema import AttrSchema
from schemax.extraction.stated import as_text
from schemax.formats import get_format
from schemax.runtime.models.model import DecoderModel
from schemax.training.distillation import examples_by_model, examples_by_predictions
from schemax.training.features import fill_row, make_features
from schemax.training.sequences import IGNORE, ItemTarget, collate, training_sequence
from schemax.training.training_examples import gold_examples

JSON = get_format("json")


def items_of(specs: Any, slots: Any) -> list[ItemTarget]:
    """What a decoder has written into all slots that were called for."""
    found: list[ItemTarget] = []
    for spec, slot in zip(specs, slots, strict=True):
        if spec.follow_ups is None or not slot.items:
            continue
        children = spec.follow_ups.after(slot)
        for child, output in zip(children, slot.items, strict=True):
            found.append(ItemTarget(0, child.key, output.ids, len(output.ids)))
        found += items_of([child.spec for child in children], slot.items)
    return found


@pytest.mark.parametrize("format", ["json", "yaml"])
def test_training_logits_choose_the_decoder_s_tokens(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, format: str
) -> None:
    """Filled with what the decoder wrote, items within items too, and two documents in a row."""
    compiled = compile_schema(Television, codec, format=format, template=TEMPLATE, decoding=PLAIN)
    model = decoder_model()
    prompts = prompts_with(compiled, TITLES[:2], (2, 3))
    decoded = [output.slots for output in filled(model, compiled, prompts)]
    documents = [tuple(codec.encode(text)) for text in TITLES[:2]]
    items = [items_of(compiled.slots, slots) for slots in decoded]
    assert sum(map(len, items)) > 2 + 3 + 2 * 3 + 3 * 3 - 1
    sequence = training_sequence(
        compiled,
        compiled.assemble(documents),
        [slot.ids for slots in decoded for slot in slots],
        items=items,
    )
    input_ids, tokens, labels = collate([sequence], pad_id=0)
    rows, columns = torch.nonzero(labels != IGNORE, as_tuple=True)
    with torch.inference_mode():
        logits = model.forward(input_ids, tokens, (rows, columns), PLAIN)
    wrong = logits.argmax(dim=-1) != labels[rows, columns]
    # The counts were given to the decoder.
    assert int(wrong.sum()) <= 2 * 2 * 4
    in_items = tokens.slot[0, columns] >= 2 * len(compiled.attributes)
    assert int(in_items.sum()) == sum(len(item.values) for row in items for item in row)
    assert not wrong[in_items].any()


ATTRIBUTES = {
    "brand": "LG",
    "colors": ["red", "blue"],
    "ports": [
        {"kind": "HDMI", "version": 2.10, "uses": ["tv", "pc"]},
        {"kind": "USB"},
    ],
    "tags": "new",
}


def examples(tmp_path: Path, **changes: Any) -> list[Example]:
    row = {"category": "tv", "text": "LG", "attributes": ATTRIBUTES | changes}
    read = read_examples(Path(jsonl(tmp_path / "lists.jsonl", [row])))
    return as_declared(read, {"tv": Television})


def test_labels_of_lists(tmp_path: Path) -> None:
    (example,) = gold_examples(examples(tmp_path), {"tv": Television}, JSON)
    assert example.values == {
        "brand": "LG",
        "colors": ["red", "blue"],
        "ports": [["HDMI", Decimal("2.1"), ["tv", "pc"]], ["USB", None, None]],
        "tags": ["new"],
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ports": [{"colour": "red"}]}, "an item has no 'colour'; it has 'kind', 'version'"),
        ({"ports": ["HDMI"]}, "an item must be a JSON object, not 'HDMI'"),
        ({"colors": [f"c{n}" for n in range(7)]}, "7 items, and 6 can be read"),
    ],
)
def test_labels_that_are_no_items(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        gold_examples(examples(tmp_path, **changes), {"tv": Television}, JSON)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ports": [{"kind": "VGA"}]}, "#1: ports: .*'HDMI' or 'USB'"),
        ({"ports": [{"kind": "USB", "version": "old"}]}, "#1: ports: .*number"),
    ],
)
def test_labels_that_the_schema_refuses_are_named_and_not_taught(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    read = examples(tmp_path, **changes)
    (example,) = gold_examples(read, {"tv": Television}, JSON)
    assert example.unknown == changes.keys()
    assert not changes.keys() & example.values.keys()
    with pytest.warns(UserWarning, match=f"no value is right and none is taught: {said}"):
        note_misfits(read, {"tv": Television})


def test_predictions_are_compared_with_labels_item_by_item(tmp_path: Path) -> None:
    (example,) = examples(tmp_path)
    ports = [Port(kind="HDMI", version=2.1, uses=["tv", "pc"]), Port(kind="USB")]
    (found,) = labelled_texts([example], [{"ports": ports}], {"tv": Television})
    written = json.loads(found["ports"])
    assert written[1] == {"kind": "USB"}
    label = example.attributes["ports"]
    assert isinstance(label, str)
    assert json.loads(label)[0]["uses"] == written[0]["uses"]
    assert as_text(["red", "blue"]) == example.attributes["colors"]
    assert as_text(["new"]) == example.attributes["tags"]
    (other,) = examples(tmp_path, colors=['["red"]', '["blue"]', None])
    assert other.attributes["colors"] == ('["red"]', '["blue"]', None)


class RoomyPort(AttrSchema):
    kind: str
    version: float | None = None
    uses: list[str] = attr(long=True, default_factory=list)


class Roomy(AttrSchema):
    """Budgets that every value fits."""

    brand: str | None = None
    colors: list[str] = attr(long=True, default_factory=list)
    ports: list[RoomyPort] = attr(default_factory=list)
    tags: list[str] | None = None


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_items_are_filled_in_as_they_are_asked_for(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, tmp_path: Path, format: str
) -> None:
    """Keys and values of a row of training, read back slot by slot."""
    compiled = compile_schema(Roomy, codec, format=format)
    (example,) = gold_examples(
        as_declared(examples(tmp_path), {"tv": Roomy}), {"tv": Roomy}, compiled.format
    )
    features = make_features([example], {"tv": compiled}, decoder_model(), 1.0)["tv"]
    sequence = fill_row(compiled, features, random.Random(0))
    assert len(sequence) == len(compiled.instruction) + features[0].tokens
    found = []
    for slot in range(len(compiled.attributes), int(sequence.slot.max()) + 1):
        mine = sequence.slot == slot
        key = sequence.input_ids[mine & (sequence.step == 0)]
        ids = [int(label) for label in sequence.labels[mine] if label != IGNORE]
        text, complete = compiled.decode_slot(ids)
        assert complete
        found.append((codec.decode_bytes(key.tolist()).decode(), compiled.format.unescape(text)))
        assert sequence.position_ids[mine].min() == sequence.position_ids[sequence.slot == 0].min()
    paths = list(all_labels(compiled.attributes))
    keys = [compiled.format.key(path, None) for path in paths]
    assert all(key in keys for key, _ in found)
    assert [value for _, value in found] == [
        *("red", "blue", "HDMI", "2.1", "2", "tv", "pc", "USB", None, None)
    ]


def test_lists_of_teachers(tmp_path: Path, decoder_model: Any, codec: TextCodec) -> None:
    """From rows that were written, and from what a model writes itself."""
    annotated = examples(tmp_path)
    row = {"attributes": ATTRIBUTES, "errors": [{"field": "tags", "message": "x"}]}
    path = Path(jsonl(tmp_path / "predictions.jsonl", [row]))
    (example,) = examples_by_predictions(path, annotated, {"tv": Television}, JSON)
    assert example.values["colors"] == ["red", "blue"]
    assert example.values["ports"] == [
        ["HDMI", Decimal("2.1"), ["tv", "pc"]],
        ["USB", None, None],
    ]
    assert example.unknown == {"tags"}
    wrong = {"field": "ports.1.version", "message": "x"}
    jsonl(path, [row | {"errors": [wrong]}])
    (example,) = examples_by_predictions(path, annotated, {"tv": Television}, JSON)
    assert "ports" in example.unknown
    assert "ports" not in example.values


def test_a_model_s_own_lists(
    decoder_model: Callable[..., DecoderModel], backend: Any, tmp_path: Path, saved_model: Path
) -> None:
    from schemax.extraction.extractor import Extractor

    class Tv(AttrSchema):
        sizes: list[int] = attr(long=True, min_length=2, max_length=2, k_max=5)

    extractor = Extractor.from_pretrained(saved_model, device="cpu")
    product = Example("tv", "LG 55 inches, 48 inches", {})
    (found,) = extractor.stream([product.text], Tv)
    (example,) = examples_by_model(extractor, [product], {"tv": Tv}, JSON, DecodingConfig())
    if "sizes" in example.unknown:
        assert found.errors
    else:
        assert example.values.get("sizes") == (found.fields["sizes"].value or None)


SHOP = """
from schemax import AttrSchema, attr

class Port(AttrSchema):
    kind: str | None = attr(k_max=12)
    count: int | None = None

class Set(AttrSchema, template="{% for d in documents %}{{ d.text }}\\n{% endfor %}"):
    colors: list[str] = attr(long=True, default_factory=list, k_max=12, max_length=4)
    ports: list[Port] = attr(default_factory=list, max_length=4)
"""
SETS = {
    "Samsung red, two HDMI": {"colors": ["red"], "ports": [{"kind": "HDMI", "count": 2}]},
    "LG red and blue, USB, HDMI": {
        "colors": ["red", "blue"],
        "ports": [{"kind": "USB"}, {"kind": "HDMI"}],
    },
    "Sony, nothing": {"colors": None, "ports": None},
}


@pytest.mark.release
def test_lists_are_learnt_by_heart(saved_model: Path, tmp_path: Path) -> None:
    """The whole way: labels in a file, a model in a folder, and rows that the folder reads."""
    rows = [{"category": "set", "text": t, "attributes": a} for t, a in SETS.items()]
    (tmp_path / "shop.py").write_text(SHOP)
    data = jsonl(tmp_path / "train.jsonl", rows)
    out = str(tmp_path / "out")
    schema = f"{tmp_path / 'shop.py'}:Set"
    options = ["--held-out", "0", "--epochs", "120", "--check-every", "1000", "--device", "cpu"]
    options += ["--learning-rate", "5e-3"]
    invoke = CliRunner().invoke
    done = invoke(
        app,
        ["train", data, "--model", str(saved_model), "--out", out, "--schemas", schema, *options],
    )
    assert done.exit_code == 0, done.output
    done = invoke(app, ["extract", out, data, "--text", "text"])
    assert done.exit_code == 0, done.output
    found = [json.loads(line)["attributes"] for line in done.stdout.splitlines()]
    assert [row["colors"] for row in found] == [["red"], ["red", "blue"], []]
    assert found[0]["ports"] == [{"kind": "HDMI", "count": 2}]
    assert [port["kind"] for port in found[1]["ports"]] == ["USB", "HDMI"]
    done = invoke(app, ["evaluate", data, "--model", out, "--json"])
    assert json.loads(done.stdout)[0]["f1"] == 1.0
