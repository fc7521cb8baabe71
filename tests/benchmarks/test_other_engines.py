"""schemax beside other engines: what is measured without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command_line import jsonl

from benchmarks import other_engines
from benchmarks.other_engines import Rivals, measure_engines
from recipes.packed_weights import show_products
from recipes.server_costs import read_work
from schemax import Extractor
from schemax.base.resources import resource_dir
from schemax.runtime.models.packed import multiplies_bfloat16

FOLDER = str(resource_dir("embedded"))
TEAS = [
    {"category": "Tea", "text": f"Tazo Tea {n}, 20 ct", "attributes": {"Brand": "Tazo"}}
    for n in range(4)
]


def test_each_number_in_flight_is_measured(tmp_path: Path) -> None:
    labels = Path(jsonl(tmp_path / "labels.jsonl", TEAS))
    rows = measure_engines(
        FOLDER, labels, None, documents=4, shots=0, in_flight=(4, 1), few=2, threads=1,
        dtype="float32", rivals=Rivals(),
    )  # fmt: skip
    many, alone = rows
    assert (many.documents, alone.documents) == (4, 2)
    assert min(many.f1, alone.f1) > 0
    assert many.seconds > 0
    assert json.dumps(many.to_dict())


def test_rivals_read_the_same_prompt_and_write_under_the_schema(tmp_path: Path) -> None:
    work = read_work(Path(jsonl(tmp_path / "labels.jsonl", TEAS)), 4, None, 0, "json")
    extractor = Extractor.from_pretrained(FOLDER, device="cpu")
    prompts = other_engines.prompts_of(extractor, work)
    decoded = [extractor.tokenizer.decode(item["ids"]) for item in prompts]
    assert all(tea["text"] in text for tea, text in zip(TEAS, decoded, strict=True))
    assert prompts[0]["schema"]["required"] == ["Brand"]
    assert other_engines.f1_of(work, ['{"Brand": "Tazo"}'] * 3 + ["no JSON"]) == pytest.approx(
        2 * 0.75 / 1.75
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_packed_weights(dtype: torch.dtype, capsys: pytest.CaptureFixture[str]) -> None:
    if dtype == torch.bfloat16 and not multiplies_bfloat16():
        pytest.skip("oneDNN has no bfloat16 for this processor")
    show_products(32, 16, 2, (1, 3), dtype)
    assert capsys.readouterr().out.count("\n") == 4
