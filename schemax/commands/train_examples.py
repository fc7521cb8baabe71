"""Examples in the prompts of `schemax train`: which they are, and what is left to train on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from schemax.commands.console import UsageError, say
from schemax.commands.datasets import Dataset
from schemax.commands.few_shot import NONE, Shots
from schemax.evaluation.examples import Example, read_examples, row_ids, shown_text
from schemax.messages import counted, some_of

if TYPE_CHECKING:
    from schemax.training.training_examples import TrainingExample


def shots_for(
    file: Path | None,
    count: int | None,
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    data: Dataset,
    test: Path | None,
) -> Shots | None:
    """What the prompts show, None for nothing: the first `count` of every category, None for all,
    of a file, else of the documents to train on; never what also stands in `test`.

    Raises InputError for a file that cannot be read, UsageError where it holds no example.
    """
    if count == 0 or str(file) == NONE or (file is None and count is None):
        return None
    found = Shots.among(annotated, data.file) if file is None else Shots.read(file, schemas)
    if test is not None:
        found = found.without({example.text for example in read_examples(test)}, test)
    if count is not None:
        found.note_lacking(count)
        found = found.first(count)
    return found.asked_by(schemas) if data.schemas is None else found


def left_to_train(
    shots: Shots,
    annotated: Sequence[Example],
    examples: Sequence[TrainingExample],
    data: Dataset,
) -> tuple[list[Example], list[TrainingExample]]:
    """Documents, and what is taught of them, without those that prompts show; notes which.

    Raises UsageError where no document of a category is left.
    """
    texts = {shown_text("", example) for example in shots.examples}
    kept = [
        shown_text(name, one) not in texts
        for name, one in zip(row_ids(annotated), annotated, strict=True)
    ]
    left = [one for one, keep in zip(annotated, kept, strict=True) if keep]
    if dropped := [n for n, keep in zip(row_ids(annotated), kept, strict=True) if not keep]:
        say(
            f"note: shown as examples, dropped from training: {counted(len(dropped), 'document')} "
            f"of {data.file}: {some_of(dropped)}"
        )
    there = {one.category for one in left}
    if gone := [c for c in dict.fromkeys(one.category for one in annotated) if c not in there]:
        raise UsageError(
            f"all documents of {some_of(map(repr, gone))} in {data.file} are shown as examples; no "
            "document is left to train on: give fewer --shots"
        )
    return left, [example for example in examples if example.text not in texts]


def card_of(shots: Shots | None, file: Path | None) -> dict[str, Any]:
    """What the card says of them."""
    if shots is None:
        return {}
    from schemax.training.card import digest

    read = {} if file is None else {"file": file.name, "sha256": digest(file)}
    shown = {category: [name for name, _ in rows] for category, rows in shots.rows.items()}
    return {"examples": read | {"shown": shown}}
