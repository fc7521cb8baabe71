"""Where training takes its labels from: annotations, a teacher, or the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from schemax.config import PRESETS, DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.examples import Example
from schemax.extractor import Extractor
from schemax.formats import get_format
from schemax.training.distillation import examples_by_model, examples_by_predictions
from schemax.training.training_examples import TrainingExample, gold_examples

LabelSource = Literal["gold", "teacher", "self"]


@dataclass(frozen=True, slots=True)
class Labelling:
    """labels: the annotations, what `teacher` says, or what the model itself writes.

    teacher: a model, a server's address, or a file of rows that `schemax extract` wrote.
    decoding: how the teacher, or the model itself, decodes; None as it was trained, else
        autoregressive.
    """

    labels: LabelSource = "gold"
    teacher: str | None = None
    decoding: DecodingConfig | None = None

    @property
    def by_model(self) -> bool:
        """True where a model predicts the labels."""
        of_teacher = self.teacher is not None and not self.teacher.endswith(".jsonl")
        return self.labels == "self" or of_teacher

    def examples(
        self,
        annotated: Sequence[Example],
        schemas: Mapping[str, type[BaseModel]],
        extractor: Extractor,
        load: Callable[[str], Extractor],
        settings: Mapping[str, Any],
    ) -> list[TrainingExample]:
        """Training examples for a model.

        load: loads a teacher. settings: format, template and examples, as of `Extractor.stream`.
        """
        output = get_format(settings["format"] or extractor.format or "json")
        if self.labels == "gold":
            return gold_examples(annotated, schemas, output)
        if self.teacher is not None and not self.by_model:
            if not Path(self.teacher).is_file():
                raise InputError(f"no such file: {self.teacher}")
            return examples_by_predictions(Path(self.teacher), annotated, schemas, output)
        reader, own, template = extractor, None, settings["template"]
        if self.teacher is not None:
            reader, template = load(self.teacher), None
            own, output = reader.trained.decoding, get_format(reader.format or "json")
        return examples_by_model(
            reader,
            annotated,
            schemas,
            output,
            self.decoding or own or PRESETS["autoregressive"],
            template=template,
            examples=settings["examples"],
        )
