"""Documents that a model was trained or calibrated on, known by signatures in its folder.

A signature is a MinHash of a text's words (Broder, On the Resemblance and Containment of Documents,
1997): case, blanks, punctuation and the order of words do not change it, and the share of equal
numbers in two signatures estimates the share of words that two texts have in common. The text
cannot be read from it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

from schemax.base.messages import counted, say, some_of
from schemax.base.trained import SEEN
from schemax.errors import InputError, ModelError
from schemax.evaluation.examples import Example, row_ids
from schemax.extraction.extractor import Extractor
from schemax.reading.folding import words_of

ALIKE = 0.8
"""The share of common words from which a text counts as a copy of another."""

_SIZE = 64
_VERSION = "version"

Signatures = npt.NDArray[np.uint16]

_EFFECTS = {"trained": "their F1 is too high", "calibrated": "their confidences look too good"}


def signatures(examples: Sequence[Example]) -> Signatures:
    """Returns (n, 64) signatures: 128 bytes a document."""
    words = [words_of(example.whole_text) or [example.whole_text] for example in examples]
    digests = RMinHash.digests_from_token_sets(words, _SIZE, 0)
    return np.array(digests, np.uint32).reshape(-1, _SIZE).astype(np.uint16)


def read_seen(path: Path | None) -> dict[str, Signatures]:
    """Returns the signatures of documents that a model was "trained" and "calibrated" on.

    Warns of a file by another version of MinHash, which cannot be compared. Raises ModelError,
    naming the file, if it is broken.
    """
    if path is None:
        return {}
    try:
        with np.load(path, allow_pickle=False) as file:
            if file[_VERSION] != RMinHash.ALGORITHM_VERSION:
                warnings.warn(
                    f"{path} was written by another version of rensa, so nobody knows which "
                    "documents the model was trained on",
                    stacklevel=2,
                )
                return {}
            kept = {name: file[name] for name in _EFFECTS if name in file}
        if any(rows.dtype != np.uint16 or rows.shape[1:] != (_SIZE,) for rows in kept.values()):
            raise ValueError("it holds no signatures")
        return kept
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ModelError(f"{path} cannot be used: {error}; delete it") from error


def add_seen(folder: Path, known: Mapping[str, Signatures], **more: Sequence[Example]) -> None:
    """Writes what is known, and further documents, into a model's folder.

    more: documents by "trained" and "calibrated".
    """
    arrays: Any = {
        name: np.unique(np.concatenate([*([known[name]] if name in known else []), rows]), axis=0)
        for name, rows in ((name, signatures(examples)) for name, examples in more.items())
    }
    with (folder / SEEN).open("wb") as file:
        np.savez(file, **{_VERSION: np.array(RMinHash.ALGORITHM_VERSION), **known, **arrays})


def copies(known: Signatures | None, rows: Signatures) -> list[int]:
    """Returns the places of rows that equal any known signature in a share of `ALIKE`."""
    if known is None or not len(known):
        return []
    return [n for n, row in enumerate(rows) if (known == row).sum(axis=1).max() >= ALIKE * _SIZE]


def seen_among(extractor: Extractor, examples: Sequence[Example]) -> dict[str, list[int]]:
    """Returns the places of examples that a model was "trained" and "calibrated" on, or copies."""
    known = read_seen(extractor.trained.seen)
    rows = signatures(examples) if known else np.empty((0, _SIZE), np.uint16)
    return {kind: copies(known.get(kind), rows) for kind in _EFFECTS}


def note_seen(
    extractor: Extractor, name: str | None, examples: Sequence[Example]
) -> dict[str, int]:
    """Counts the examples that a model has seen, and warns of them. name: the model's."""
    places, ids = seen_among(extractor, examples), row_ids(examples)
    for kind, seen in places.items():
        if seen:
            warnings.warn(
                f"{name or 'the model'} was {kind} on {len(seen):,} of "
                f"{counted(len(examples), 'document')} or on close copies, so "
                f"{_EFFECTS[kind]}: {some_of(ids[place] for place in seen)}",
                stacklevel=2,
            )
    return {kind: len(seen) for kind, seen in places.items()}


def unseen_examples(extractor: Extractor, examples: Sequence[Example], file: Path) -> list[Example]:
    """Returns the examples of a file that a model was not trained on, and notes the rest.

    Raises InputError if no example is left.
    """
    trained = set(seen_among(extractor, examples)["trained"])
    if len(trained) == len(examples):
        raise InputError(
            f"the model was trained on all documents of {file} or on close copies, where its "
            "confidences are too high; calibrate it on other documents"
        )
    if trained:
        names = (name for place, name in enumerate(row_ids(examples)) if place in trained)
        say(
            f"note: left out, since the model was trained on them or on close copies: "
            f"{len(trained):,} of {counted(len(examples), 'document')}: {some_of(names)}"
        )
    return [example for place, example in enumerate(examples) if place not in trained]
