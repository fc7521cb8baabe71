"""What twenty labels are worth to a pretrained model, without training."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import DATA

from schemax import Extractor
from schemax.evaluation.examples import read_examples
from schemax.evaluation.schemas import annotated_schemas
from schemax.fitting import fit

LABELS = DATA / "oa_mine.train.jsonl"


@pytest.mark.llm
@pytest.mark.skipif(not LABELS.is_file(), reason=f"needs {LABELS}")
def test_twenty_labels_help_a_pretrained_model(smollm2: Path) -> None:
    coffees = [one for one in read_examples(LABELS) if one.category == "Coffee"][:20]
    extractor = Extractor.from_pretrained(smollm2, dtype="bfloat16")
    done = fit(extractor, coffees, annotated_schemas(coffees), seconds=150)
    assert len(done.prompt.demonstrations) >= 4
    assert done.after.protocol.f1 > done.before.protocol.f1 + 0.1
    assert done.after.strict.f1 > done.before.strict.f1
    assert done.gain().low > 0
    # The trials that decided were of other documents than those that tell the gain.
    decided = {trial.documents for trial in done.trials}
    assert max(decided) + done.after.products + len(done.chosen.shown["Coffee"]) <= len(coffees)
