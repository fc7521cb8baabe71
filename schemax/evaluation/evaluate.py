"""Measures settings of one model or several on the same annotated documents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from schemax.base.messages import counted, say, some_of
from schemax.base.trained import note_trained
from schemax.config import decoding_name
from schemax.evaluation.datasets import Dataset, as_shown, note_texts, schemas_for
from schemax.evaluation.examples import Example, duplicated_ids, read_examples
from schemax.evaluation.judge import JudgeForm
from schemax.evaluation.labelled_schemas import as_declared, note_misfits
from schemax.evaluation.measure import judge_run, measure
from schemax.evaluation.runs import EvaluationRun
from schemax.evaluation.shots import Shots, prompted, shots_for
from schemax.extraction.extractor import Extractor


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A measurement of every decoding of every model with every number of examples.

    models: names; None is the usual model. decodings: settings of `Extractor.stream` by the names
    of runs, "" for the model's own. shots: a file of examples; counts: the numbers of examples to
    show, () for all. schema_examples: see `as_shown`.
    """

    data: Dataset
    models: Sequence[str | None]
    decodings: Sequence[tuple[str, Mapping[str, Any]]]
    limit: int | None = None
    shots: Path | None = None
    counts: Sequence[int] = ()
    schema_examples: bool | None = None

    def run(
        self, load: Callable[[str | None], Extractor]
    ) -> tuple[dict[str | None, Extractor], list[EvaluationRun]]:
        """Measures; returns the models by name, and a run for every setting.

        Raises InputError for documents, labels and examples that cannot be used.
        """
        examples = read_examples(self.data.file)
        tested = {example.text for example in examples}
        examples = examples[: self.limit]
        if repeated := duplicated_ids(examples):
            say(f"note: several documents have the same id: {some_of(repeated)}")
        extractors = {name: load(name) for name in self.models}
        schemas = schemas_for(self.data.schemas, examples, extractors.values(), self.data.language)
        note_texts(self.data.schemas, examples, extractors.values())
        examples = as_declared(examples, schemas)
        note_misfits(examples, schemas)
        extractors = {
            name: prompted(one, schemas, examples, self.data) for name, one in extractors.items()
        }
        shots = None
        if self.shots is not None:
            read, most = Shots.read(self.shots, schemas), max(self.counts, default=None)
            shots = shots_for(read, schemas, self.data, hidden=tested, count=most)
        counts: Sequence[int | None] = self.counts
        if not counts:
            counts = [None if shots is None else shots.most]
        asked: list[tuple[Any, ...]] = []
        for model, extractor in extractors.items():
            note_trained(model, extractor, self.decodings[0][1], self.shots or self.counts or None)
            own = as_shown(schemas, self.data.schemas, examples, extractor, self.schema_examples)
            for name, settings in self.decodings:
                called = name or decoding_name(extractor.defaults.decoding)
                for count in counts:
                    pairs: Any = {category: [] for category in own}
                    if count is None:
                        pairs = None
                    elif shots is not None:
                        pairs = shots.first(count).of(own)
                    # Errors of this setting are raised now, not after hours of other settings.
                    extractor.stream((), own, category="category", examples=pairs, **settings)
                    asked.append((model, extractor, own, called, settings, count, pairs))
        return extractors, [self._measured(examples, *one) for one in asked]

    def _measured(
        self, examples: Sequence[Example], model: str | None, extractor: Extractor, *setting: Any
    ) -> EvaluationRun:
        schemas, name, settings, count, pairs = setting
        if sys.stderr.isatty():  # a line, since a progress bar would cost measured time
            behind = "" if count is None else f" behind {counted(count, 'example')}"
            say(f"{name}: {counted(len(examples), 'document')}{behind} ...")
        run = measure(extractor, examples, schemas, name, settings, count, pairs)
        return replace(run, model=str(model)) if len({*self.models}) > 1 else run


def judged(
    runs: Sequence[EvaluationRun], judge: Extractor, name: str, forms: Sequence[JudgeForm]
) -> list[EvaluationRun]:
    """The runs with verdicts of a model. name: the judge's, in reports."""
    return [
        replace(run, judged=tuple(judge_run(judge, name, run, form) for form in forms))
        for run in runs
    ]
