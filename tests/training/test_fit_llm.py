"""What twenty labels are worth to a pretrained model, without training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemax import Extractor
from schemax.evaluation.examples import Example
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.training.fitting import fit

LABELS = Path(__file__).parents[1] / "data" / "tasks" / "address.jsonl"


def addresses() -> list[Example]:
    """Postal addresses, with every part that they do not state as null."""
    rows = [json.loads(line) for line in LABELS.read_text("utf-8").splitlines()]
    names = dict.fromkeys(name for row in rows for name in row if name != "text")
    labels = [{name: str(row[name]) if name in row else None for name in names} for row in rows]
    return [
        Example("address", row["text"], stated) for row, stated in zip(rows, labels, strict=True)
    ]


@pytest.mark.llm
def test_twenty_labels_help_a_pretrained_model(smollm2: Path) -> None:
    labelled = addresses()
    extractor = Extractor.from_pretrained(smollm2, dtype="bfloat16")
    done = fit(extractor, labelled, annotated_schemas(labelled), seconds=150)
    assert len(done.prompt.demonstrations) >= 4
    assert done.after.protocol.f1 > done.before.protocol.f1 + 0.1
    assert done.after.strict.f1 > done.before.strict.f1
    assert done.gain().low > 0
    # The trials that decided were of other documents than those that tell the gain.
    decided = {trial.documents for trial in done.trials}
    assert max(decided) + done.after.products + len(done.chosen.shown["address"]) <= len(labelled)
