"""Calibrates a model on annotated documents of a file or folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from schemax.config import DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.calibrate import Fit, calibrate
from schemax.evaluation.datasets import Dataset, as_shown, schemas_for
from schemax.evaluation.examples import read_examples
from schemax.evaluation.labelled_schemas import as_declared, note_misfits
from schemax.evaluation.shots import Shots, prompted, shots_for
from schemax.extraction.extractor import Extractor


def calibrate_on(
    data: Dataset,
    load: Callable[[], Extractor],
    formats: Sequence[str | None],
    *,
    limit: int | None = None,
    schema_examples: bool | None = None,
    shots: Path | None = None,
    count: int | None = None,
    decoding: DecodingConfig | None = None,
    **settings: Any,
) -> Fit:
    """Calibrates a model on annotated documents, with progress on stderr.

    shots: a file of examples; prompts show the first `count`. schema_examples: see `as_shown`.
    settings: others of `calibrate`.
    """
    everything = read_examples(data.file)
    examples = everything[:limit]
    extractor = load()
    if (decoding or extractor.defaults.decoding).layout == "autoregressive":
        raise InputError("values of the autoregressive layout have no confidence to calibrate")
    schemas = schemas_for(data.schemas, examples, [extractor], data.language)
    examples = as_declared(examples, schemas)
    note_misfits(examples, schemas)
    extractor = prompted(extractor, schemas, examples, data)
    schemas = as_shown(schemas, data.schemas, examples, extractor, schema_examples)
    pairs = None
    if shots is not None:
        texts = {example.text for example in everything}
        shown = Shots.read(shots, schemas)
        pairs = shots_for(shown, schemas, data, hidden=texts, count=count).of(schemas)
    return calibrate(
        extractor,
        examples,
        schemas,
        formats,
        decoding=decoding,
        shots=pairs,
        show_progress=True,
        **settings,
    )
