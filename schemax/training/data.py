"""Training data as it comes: annotated without what must not be trained on."""

from __future__ import annotations

import warnings
from pathlib import Path

from schemax.errors import InputError
from schemax.evaluation.examples import Example, duplicated_ids, overlap, read_examples
from schemax.messages import counted, some_of


def read_training_examples(
    train: Path, test: Path | None, *, keep_overlap: bool = False
) -> list[Example]:
    """Examples to train on: without those whose text is also in `test`, unless these are kept.

    Warns of both, and of ids that occur twice. Raises InputError for files that hold
    anything else, and where nothing is left; OSError for those that cannot be read.
    """
    annotated = read_examples(train)
    if doubled := duplicated_ids(annotated):
        warnings.warn(f"{train}: ids that occur more than once: {some_of(doubled)}", stacklevel=2)
    if test is None:
        return annotated
    tested = read_examples(test)
    shared = overlap(tested, annotated)
    if not shared:
        return annotated
    what = "kept in training" if keep_overlap else "dropped from training"
    warnings.warn(
        f"also in {test}, {what}: {counted(len(shared), 'document')} of {train}: {some_of(shared)}",
        stacklevel=2,
    )
    if keep_overlap:
        return annotated
    texts = {example.text for example in tested}
    left = [example for example in annotated if example.text not in texts]
    if not left:
        raise InputError(
            f"all documents of {train} are also in {test}; no document is left to train on"
        )
    return left
