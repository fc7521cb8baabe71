"""Annotated documents out of other files than JSON Lines of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl

from schemax.errors import InputError
from schemax.evaluation.examples import Example, read_examples

EXPECTED = [
    Example("Tea", "Tazo Zen 24 ct", {"Brand": "Tazo", "Count": "24"}, id="t1"),
    Example("Tea", "Numi", {"Brand": "Numi"}, id="t2"),
]


def test_columns_of_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(
        "id,category,text,Brand,Count\nt1,Tea,Tazo Zen 24 ct,Tazo,24\nt2,Tea,Numi,Numi,\n"
    )
    assert read_examples(path) == EXPECTED
    path.write_text("text,Brand\nNumi,Numi\n")
    (example,) = read_examples(path)
    assert (example.category, example.attributes) == ("document", {"Brand": "Numi"})
    path.write_text("Brand\nNumi\n")
    with pytest.raises(InputError, match=r"train\.csv, row 1: .*text: expected text, got nothing"):
        read_examples(path)


@pytest.mark.parametrize("form", ["struct", "json", "columns", "dataset"])
def test_parquet_and_datasets(tmp_path: Path, form: str) -> None:
    """A struct has every key in every row, which is no annotation."""
    pa = pytest.importorskip("pyarrow")
    rows: list[dict[str, Any]] = [
        {
            "id": one.id,
            "category": one.category,
            "text": one.text,
            "attributes": dict(one.attributes),
        }
        for one in EXPECTED
    ]
    rows[0]["attributes"]["Count"] = 24
    if form == "json":
        rows = [row | {"attributes": json.dumps(row["attributes"])} for row in rows]
    if form == "columns":
        rows = [
            {key: row[key] for key in ("id", "category", "text")}
            | {"Brand": row["attributes"]["Brand"], "Count": row["attributes"].get("Count")}
            for row in rows
        ]
    path = tmp_path / "train.parquet"
    if form == "dataset":
        datasets = pytest.importorskip("datasets")
        path = tmp_path / "train"
        datasets.Dataset.from_list(rows).save_to_disk(path)
    else:
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(rows), path)
    assert read_examples(path) == EXPECTED


def chat(answer: str, **more: Any) -> dict[str, Any]:
    question = {"role": "user", "content": [{"type": "text", "text": "Tazo Zen 24 ct"}]}
    system = {"role": "system", "content": "Extract."}
    return {"messages": [system, question, {"role": "assistant", "content": answer}], **more}


def test_chats(tmp_path: Path) -> None:
    answer = json.dumps({"Brand": "Tazo", "Count": 24})
    rows = [chat(answer, id="t1", category="Tea"), chat(f"```json\n{answer}\n```")]
    first, second = read_examples(Path(jsonl(tmp_path / "chats.jsonl", rows)))
    assert first == EXPECTED[0]
    assert (second.category, second.attributes) == ("document", first.attributes)
    for row, said in (
        (chat("Tazo"), "the answer is not JSON"),
        ({"messages": [{"role": "user", "content": "x"}]}, "expected a question"),
        ({"messages": 5}, "expected a question"),
        ({"messages": {"role": "user"}}, "expected a question"),
        (chat([5, None]), "the answer is not JSON"),
    ):
        path = Path(jsonl(tmp_path / "chats.jsonl", [row]))
        with pytest.raises(InputError, match=f"line 1: .*{said}"):
            read_examples(path)


def region(label: str, text: str) -> dict[str, Any]:
    value = {"start": 0, "end": len(text), "text": text, "labels": [label]}
    return {"from_name": "label", "to_name": "text", "type": "labels", "value": value}


def test_exports_of_label_studio(tmp_path: Path) -> None:
    entered = {"from_name": "Note", "type": "textarea", "value": {"text": ["organic"]}}
    chosen = {"from_name": "Kind", "type": "choices", "value": {"choices": ["green"]}}
    count = {"from_name": "Count", "type": "number", "value": {"number": 24}}
    relation = {"from_id": "a", "to_id": "b", "type": "relation", "direction": "right"}
    result = [region("Brand", "Tazo"), region("Color", "red"), region("Color", "blue")]
    tasks = [
        {
            "id": 7,
            "data": {"text": "Tazo Zen", "category": "Tea"},
            "annotations": [
                {"result": [region("Brand", "Zen")]},
                {"result": [*result, entered, chosen, count, relation]},
                {"result": [], "was_cancelled": True},
            ],
        },
        {"id": 8, "data": {"title": "Numi"}, "annotations": []},
        {
            "id": 9,
            "data": {"title": "Rishi"},
            "annotations": [{"result": [region("Brand", "Rishi")]}],
        },
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    first, second = read_examples(path)
    attributes = {
        **{"Brand": "Tazo", "Color": ("red", "blue"), "Note": "organic"},
        **{"Kind": "green", "Count": "24"},
    }
    assert first == Example("Tea", "Tazo Zen", attributes, id="7")
    assert (second.text, second.category, second.id) == ("Rishi", "document", "9")
    path.write_text(json.dumps([{"data": {"a": "x", "b": "y"}, "annotations": [{"result": []}]}]))
    with pytest.raises(InputError, match=r"row 1: .*no text among 'a', 'b'"):
        read_examples(path)


ODD = (None, 7, "x", [], {}, [None], [7], ["x"], {"x": 1}, [[]], [{}], True)


def mutated(value: Any, odd: Any, at: int) -> Any:
    """The value with its part of that number, counted in depth first, replaced by what is odd."""
    left = at

    def walk(part: Any) -> Any:
        nonlocal left
        left -= 1
        if left == -1:
            return odd
        if isinstance(part, dict):
            return {key: walk(inner) for key, inner in part.items()}
        return [walk(inner) for inner in part] if isinstance(part, list) else part

    return walk(value)


@pytest.mark.slow
def test_a_damaged_export_names_its_task(tmp_path: Path) -> None:
    """Every part of an export in turn, replaced by everything that it might be by mistake."""
    entered = {"from_name": "Note", "type": "textarea", "value": {"text": ["organic"]}}
    task = {
        "id": 7,
        "data": {"text": "Tazo Zen", "category": "Tea", "fields": ["Brand", "Size"]},
        "annotations": [
            {"result": [region("Brand", "Tazo"), entered], "was_cancelled": False},
            {"result": [], "was_cancelled": True},
        ],
    }
    path, refused = tmp_path / "export.json", 0
    whole = {"data": {"text": "Numi"}, "annotations": [{"result": [region("Brand", "Numi")]}]}
    for at in range(40):
        for odd in ODD:
            path.write_text(json.dumps([whole, mutated(task, odd, at)]))
            said = ""
            try:
                assert read_examples(path)[0].text == "Numi"
            except InputError as error:
                said = str(error)
            refused += bool(said)
            assert not said or "row 2: " in said, (at, odd)
    assert refused > 40 * len(ODD) / 4


def test_a_folder_of_another_form(tmp_path: Path) -> None:
    from schemax.evaluation.datasets import dataset

    (tmp_path / "train.csv").write_text("text,Brand\nNumi,Numi\n")
    found = dataset(tmp_path, "train", None)
    assert (found.file, found.test) == (tmp_path / "train.csv", None)
    assert read_examples(found.file)[0].attributes == {"Brand": "Numi"}
