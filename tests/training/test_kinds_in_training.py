"""Unions, dicts and tuples in labels: what extraction reads is what is taught and compared with."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl
from kind_models import FULL, Box, Everything, Note, slots_of, written

from schemax.attributes import compile_attributes
from schemax.attributes.examples import leaf_value
from schemax.compiler import TextCodec, compile_schema
from schemax.compiler.skeleton import leaves_of_item, slot_attribute
from schemax.errors import InputError
from schemax.evaluation.examples import Example, read_examples, row_ids
from schemax.evaluation.labelled_schemas import as_declared, parts_of, without_extra
from schemax.evaluation.scores import labelled_texts, score_predictions
from schemax.extraction.labels import slot_text
from schemax.formats import get_format
from schemax.results import build
from schemax.runtime.models.model import DecoderModel
from schemax.training.distillation import examples_by_predictions
from schemax.training.features import fill_row, make_features
from schemax.training.training_examples import gold_examples

JSON = get_format("json")
ATTRIBUTES = compile_attributes(Everything)
SCHEMAS: dict[str, Any] = {"everything": Everything}
LABELS = {
    "who.kind": "company",
    "who.name": "Ü & Co",
    "who.legal_form": "AG",
    "who.company.number": 12,
    "channel": "phone",
    "digits": "0123",
    "reach.owner.kind": "person",
    "reach.owner.name": "Ann",
    "reach.owner.person.number": "C1",
    "all": [{"channel": "newsletter", "address": "a@b.c"}, {"channel": "phone", "digits": "5"}],
    "specs": {"net weight": 3, "depth": 1.5},
    "people": {"seller": {"name": "Bo", "born": "2000-02-29"}},
    "code": "B-55",
    "when": "2024-03-01",
    "amount": "a lot",
    "price": "1.20",
    "many": ['[1, "a, b", 2]', None],
    "place": ["[48.25, 11.0]", "[48.25, 11]"],
    "mixed": ["a|b", 3, "y"],
    "width": 2.5,
    "labels": ["fragile", "this way up"],
    "text": "new",
    "part.name": "wheel",
    "parts": [{"name": "rim"}, {"name": "tyre"}],
}
STATED = FULL.model_copy(update={"code": "B-55", "note": {"text": "new"}})
WANTED = {a.name: leaf_value(a, STATED) for a in ATTRIBUTES}


def annotated(tmp_path: Path, **changes: Any) -> list[Example]:
    row = {"category": "everything", "text": "all of it", "attributes": LABELS | changes}
    read = read_examples(Path(jsonl(tmp_path / "gold.jsonl", [row])))
    without_extra(read, row_ids(read), SCHEMAS, "gold.jsonl", ignore=False)
    return as_declared(read, SCHEMAS)


def read_back(example: Any) -> Any:
    slots = [slot_text(a, example.values.get(a.name), JSON) for a in ATTRIBUTES]
    return build(Everything, ATTRIBUTES, slots, JSON, index=0, document_id=None)


def plain(value: Any) -> Any:
    """Numbers as numbers, dates as texts."""
    text = json.dumps(value, default=lambda x: float(x) if isinstance(x, Decimal) else str(x))
    return json.loads(text)


def test_labels_are_what_extraction_would_read(tmp_path: Path) -> None:
    (example,) = gold_examples(annotated(tmp_path), SCHEMAS, JSON)
    assert read_back(example).value == STATED
    for name, wanted in WANTED.items():
        assert plain(example.values.get(name)) == plain(wanted), name


def test_predictions_are_compared_with_labels(tmp_path: Path) -> None:
    examples = annotated(tmp_path)
    slots = slots_of(STATED, JSON)
    found = build(Everything, ATTRIBUTES, slots, JSON, index=0, document_id=None)
    values = {name: field.value for name, field in found.fields.items()}
    predictions = labelled_texts(examples, [values], SCHEMAS)
    scores = score_predictions(examples, predictions)
    assert [p.attribute for p in scores.pairs if p.outcome not in ("vc", "nn")] == []
    assert len(scores.pairs) == len(ATTRIBUTES)
    assert scores.protocol.vc == len(LABELS)


def test_rows_of_a_teacher_are_taught(tmp_path: Path) -> None:
    slots = slots_of(STATED, JSON)
    row = build(Everything, ATTRIBUTES, slots, JSON, index=0, document_id=None).to_row()
    path = Path(jsonl(tmp_path / "rows.jsonl", [row]))
    (example,) = examples_by_predictions(path, annotated(tmp_path), SCHEMAS, JSON)
    assert read_back(example).value == STATED
    jsonl(path, [row | {"attributes": row["attributes"] | {"who": {"age": 3}}}])
    with pytest.raises(InputError, match="row 1: attributes"):
        examples_by_predictions(path, annotated(tmp_path), SCHEMAS, JSON)


def test_training_sees_what_extraction_sees(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, tmp_path: Path
) -> None:
    """Every slot of a row of training, read back: keys, values, and so the instance."""
    compiled = compile_schema(Everything, codec)
    examples = gold_examples(annotated(tmp_path), SCHEMAS, JSON)
    model = decoder_model(max_position_embeddings=20_000)
    (features,) = make_features(examples, {"everything": compiled}, model, 1.0).values()
    row = fill_row(compiled, features, None)
    texts: dict[bytes, str] = {}
    for slot in range(int(row.slot.max()) + 1):
        mine = row.slot == slot
        key = codec.decode_bytes(row.input_ids[mine & (row.step == 0)].tolist())
        texts[key], complete = compiled.decode_slot([i for i in row.labels[mine] if i >= 0])
        assert complete
    asked = [slot.key for slot in compiled.known(slots_of(STATED, JSON))]
    assert {codec.decode_bytes(key) for key in asked} == texts.keys()

    def read(attribute: Any) -> Any:
        raw = texts[JSON.key(slot_attribute(attribute).labels, None).encode()]
        if not attribute.two_phase:
            return written(raw)
        numbers = range(1, int(raw) + 1 if raw.strip().isdigit() else 1)
        items = [map(read, leaves_of_item(attribute, number)) for number in numbers]
        return written(raw, items)

    found = build(
        Everything, ATTRIBUTES, list(map(read, ATTRIBUTES)), JSON, index=0, document_id=""
    )
    assert found.value == STATED


@pytest.mark.parametrize("kind", [Box, Note])
def test_classes_of_any_kind_field_by_field(kind: Any) -> None:
    parts = parts_of({"one": kind})
    names = [a.name for part in parts for a in compile_attributes(part["one"])]
    assert names == [a.name for a in compile_attributes(kind)]


@pytest.mark.parametrize("value", [{"name": "Ann"}, [{"name": "Ann"}]])
def test_objects_are_labels_of_dicts_and_lists_alone(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InputError, match="document #1: attribute 'code': expected a value, got an"):
        annotated(tmp_path, code=value)


def test_titles_that_several_attributes_have_are_no_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no attribute 'name'"):
        annotated(tmp_path, name="Ann")
