"""Measures settings of models on annotated documents: extracts, times, scores, judges."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, get_args

from pydantic import BaseModel

from schemax.attributes import compile_attributes
from schemax.attributes.examples import FewShotExample
from schemax.base.messages import counted, say, some_of, track
from schemax.base.resources import default_model
from schemax.base.trained import note_trained
from schemax.config import decoding_name
from schemax.evaluation.cascades import surenesses
from schemax.evaluation.datasets import Dataset, sha256_of
from schemax.evaluation.examples import (
    Example,
    duplicated_ids,
    read_examples,
    read_predictions,
    shown_record,
)
from schemax.evaluation.judge import (
    PRODUCT_TEMPLATE,
    JudgeForm,
    Judgement,
    cases_of,
    product_cases,
    product_judgement,
)
from schemax.evaluation.labelled_schemas import (
    as_declared,
    known_names,
    note_misfits,
    parts_of,
)
from schemax.evaluation.runs import EvaluationRun, Judged
from schemax.evaluation.scores import by_attribute, labelled_texts, score_predictions, values_of
from schemax.evaluation.seen import note_seen
from schemax.evaluation.shots import Shots, shots_for, with_prompts
from schemax.extraction.extractor import Extractor
from schemax.extraction.stated import titles_of
from schemax.formats import get_format
from schemax.io import fingerprint
from schemax.results import Extraction
from schemax.results.list_results import without_items
from schemax.servers.remote import RemoteModel
from schemax.tokens import FinishReason

ALONE = "+alone"
_WARM_UP = 16

ShotsByCategory = Mapping[str, Sequence[FewShotExample]]
"""Examples by category, for the extractor."""


def measure(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    name: str,
    settings: Mapping[str, Any],
    num_shots: int | None,
    shots: ShotsByCategory | None,
) -> EvaluationRun:
    """Extracts from the examples in one setting, and measures scores and time.

    name: the decoding's; the suffix `ALONE` asks for every field by itself.
    settings: arguments of `Extractor.stream`.
    num_shots: the most examples in a prompt.
    """
    behind = "" if num_shots is None else f" behind {counted(num_shots, 'example')}"
    say(f"{name}: {counted(len(examples), 'document')}{behind} ...")
    schema_parts = parts_of(schemas) if name.endswith(ALONE) else [schemas]
    _read(extractor, examples[:_WARM_UP], schema_parts, shots, settings)
    started = time.perf_counter()
    rows = _read(extractor, examples, schema_parts, shots, settings, show_progress=True)
    seconds = time.perf_counter() - started
    items = [item for parts in rows for item in parts]
    predictions = labelled_texts(examples, [values_of(*parts) for parts in rows], schemas)
    sure = [
        {name: field.confidence for item in parts for name, field in item.fields.items()}
        for parts in rows
    ]
    legal = [
        field.legal_probability
        for item in items
        for field in item.fields.values()
        if field.legal_probability is not None
    ]
    usual = extractor.defaults.named_format(next(iter(schemas.values()))) or "json"
    written = get_format(settings.get("format") or usual)
    is_whole = schema_parts == [schemas]
    ends = Counter(
        field.finish_reason for item in items for field in without_items(item.fields).values()
    )
    return EvaluationRun(
        decoding=name,
        shots=num_shots,
        examples=examples,
        predictions=predictions,
        confidences=by_attribute(examples, sure, schemas),
        scores=score_predictions(examples, predictions),
        passes=mean(sum(item.steps for item in parts) for parts in rows),
        seconds=seconds,
        finish_reasons={reason: ends[reason] for reason in get_args(FinishReason)},
        invalid_fields=sum(
            len({error.field for error in item.errors if error.field is not None}) for item in items
        ),
        invalid_rows=sum(any(item.errors for item in parts) for parts in rows),
        failed_rows=sum(not all(item.ok for item in parts) for parts in rows),
        legal_mass=mean(legal) if legal else None,
        sureness=surenesses(examples, items, schemas, written) if is_whole else (),
        seed=(settings.get("decoding") or extractor.defaults.decoding).seed,
    )


def _read(
    extractor: Extractor,
    examples: Sequence[Example],
    schema_parts: Sequence[Mapping[str, type[BaseModel]]],
    shots: ShotsByCategory | None,
    settings: Mapping[str, Any],
    *,
    show_progress: bool = False,
) -> list[list[Extraction[Any]]]:
    """Returns the extractions of each product, one per part: whole schemas, or single fields."""
    rows: list[list[Extraction[Any]]] = [[] for _ in examples]
    for part in schema_parts:
        places = [n for n, example in enumerate(examples) if example.category in part]
        records = [shown_record(examples[n]) for n in places]
        own = _examples_of(shots, part)
        items = extractor.stream(records, part, category="category", examples=own, **settings)
        if show_progress:  # a bar would cost measured time
            items = track(items, total=len(records), bar=False)
        for item in items:
            rows[places[item.index]].append(item)
    return rows


def run_of_predictions(
    file: Path,
    everything: Sequence[Example],
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
) -> EvaluationRun:
    """Scores the predictions of another system by the protocol of our own. The file names the run.

    everything: all examples of the data, of which `examples` are the first, as declared.
    """
    rows = read_predictions(file, everything)[: len(examples)]
    known, unknown = known_names(schemas), set[str]()
    for place, row in enumerate(rows):
        unknown |= row.attributes.keys() - known[row.category]
        own = {name: v for name, v in row.attributes.items() if name in known[row.category]}
        rows[place] = replace(row, attributes=own)
    if unknown:
        say(f"note: predicted in {file} and not asked for: {some_of(sorted(unknown))}")
    titles = {name: titles_of(compile_attributes(schema)) for name, schema in schemas.items()}
    values = [
        {
            name: row.stated.get(name, row.stated.get(title))
            for name, title in titles[row.category].items()
        }
        for row in as_declared(rows, schemas)
    ]
    predictions = labelled_texts(examples, values, schemas)
    return EvaluationRun(
        decoding=file.stem,
        examples=examples,
        predictions=predictions,
        confidences=[{} for _ in examples],
        scores=score_predictions(examples, predictions),
        failed_rows=sum(not row.attributes for row in rows),
        file=file,
    )


def judge_run(judge: Extractor, name: str, run: EvaluationRun, form: JudgeForm) -> Judged:
    """Asks a model for verdicts on a run's predictions. name: the judge's, in reports.

    The verdict of a row without an instance is unparseable.
    """
    cases = cases_of(run.examples, run.predictions)
    if form == "value":
        stream = judge.stream([case.text for case in cases], Judgement)
        tracked = track(stream, total=len(cases), unit="verdicts")
        items = sorted(tracked, key=lambda item: item.index)
        verdicts = [None if item.value is None else item.value.verdict for item in items]
        return Judged(name, form, cases, verdicts)
    names = {e.category: list(p) for e, p in zip(run.examples, run.predictions, strict=True)}
    whole = judge.stream(
        product_cases(run.examples, run.predictions),
        {category: product_judgement(own) for category, own in names.items()},
        category="category",
        text="text",
        template=PRODUCT_TEMPLATE,
        decoding="autoregressive",
    )
    by_place: dict[int, list[Any]] = {}
    for item in track(whole, total=len(run.examples), unit="products"):
        own = names[run.examples[item.index].category]
        values = [field.value for field in item.fields.values()]
        by_place[item.index] = values[1:] if values else [None] * len(own)
    return Judged(name, form, cases, [v for place in sorted(by_place) for v in by_place[place]])


def setting_of(extractor: Extractor) -> str:
    """Describes model, dtype and hardware, on which speed depends."""
    import torch

    from schemax.runtime.models.packed import num_weights

    model = extractor.model
    if isinstance(model, RemoteModel):
        return f"{model.name}, {model.client.url} ({model.served.kind})"
    parameters = num_weights(model.model) / 1e6
    place = (
        torch.cuda.get_device_name(model.device)
        if model.device.type == "cuda"
        else f"{platform.machine()} CPU, {counted(torch.get_num_threads(), 'thread')}"
    )
    return (
        f"{type(model.model).__name__}, {parameters:.1f} M parameters, "
        f"{str(model.dtype).removeprefix('torch.')}, {place}"
    )


def origin_of(extractor: Extractor | None, name: str | Path | None, file: Path) -> dict[str, Any]:
    """Returns what figures come from: digests of model and data, hardware, and versions.

    extractor: None for predictions of a file. name: the model's, None for the default model; or the
    file of predictions. file: the data.
    """
    # Imported here because they take seconds.
    import torch

    from schemax.evaluation.benchmark.report import describe_environment

    data = {"file": file.name, "sha256": sha256_of(file)}
    if extractor is None:
        path = Path(str(name))
        return {"data": data, "predictions": {"file": path.name, "sha256": sha256_of(path)}}
    place = torch.device("cpu") if extractor.defaults.is_remote else extractor.model.device
    named = str(default_model() if name is None else name)
    return {
        "data": data,
        "model": {"name": named, **fingerprint.of_loaded(extractor)},
        "environment": describe_environment(place),
    }


def _examples_of(
    shots: ShotsByCategory | None, part: Mapping[str, type[BaseModel]]
) -> ShotsByCategory | None:
    """Returns the examples of whole schemas, cut to the fields of `part`."""

    def own(value: Any, schema: type[BaseModel]) -> Any:
        if isinstance(value, schema):
            return value
        stated = schema.model_fields.keys() & value.model_fields_set
        return {name: getattr(value, name) for name in stated}

    return shots and {
        category: [(text, own(value, schema)) for text, value in shots[category]]
        for category, schema in part.items()
        if category in shots
    }


def measure_settings(
    data: Dataset,
    names: Sequence[str | None],
    decodings: Sequence[tuple[str, Mapping[str, Any]]],
    load: Callable[[str | None], Extractor],
    *,
    limit: int | None = None,
    shots: Path | None = None,
    counts: Sequence[int] = (),
    schema_examples: bool | None = None,
    predictions: Sequence[Path] = (),
) -> tuple[dict[str | None, Extractor], list[EvaluationRun]]:
    """Measures every decoding of every model with every number of examples.

    names: of the models; None is the default model.
    decodings: (name of the run, settings of `Extractor.stream`); the name "" stands for the model's
        own decoding.
    shots: a file of examples.
    counts: the numbers of examples to show, () for all.
    schema_examples: see `Dataset.as_shown`.
    predictions: files of other systems' predictions, see `read_predictions`.

    Returns the models by name, and a run for every setting, then for every file. Raises InputError
    for documents, labels, examples and predictions that cannot be used.
    """
    everything = read_examples(data.file)
    tested = {example.text for example in everything}
    examples = everything[:limit]
    if repeated := duplicated_ids(examples):
        say(f"note: several documents have the same id: {some_of(repeated)}")
    extractors = {name: load(name) for name in names}
    data.note_texts(examples, extractors.values())
    schemas, examples = data.prepared(examples, extractors.values())
    note_misfits(examples, schemas)
    rivals = [run_of_predictions(file, everything, examples, schemas) for file in predictions]
    extractors = {
        name: with_prompts(extractor, schemas, examples, data)
        for name, extractor in extractors.items()
    }
    shown = None
    if shots is not None:
        most = max(counts, default=None)
        shown = shots_for(Shots.read(shots, schemas), schemas, data, hidden=tested, count=most)
    numbers: Sequence[int | None] = counts or [None if shown is None else shown.most]
    measurements: list[tuple[str | None, tuple[Any, ...]]] = []
    seen = {model: note_seen(own, model, examples) for model, own in extractors.items()}
    for model, extractor in extractors.items():
        if extractor.further is None:  # a cascade's models are measured alone as well
            note_trained(model, extractor, decodings[0][1], shots or counts or None)
        own = data.as_shown(schemas, examples, extractor, schema_examples)
        for name, settings in decodings:
            called = name or decoding_name(extractor.defaults.decoding)
            for count in numbers:
                pairs: Any = {category: [] for category in own}
                if count is None:
                    pairs = None
                elif shown is not None:
                    pairs = shown.first(count).of(own)
                # Raises this setting's errors now, not after hours of other settings.
                extractor.stream((), own, category="category", examples=pairs, **settings)
                measurement = extractor, examples, own, called, settings, count, pairs
                measurements.append((model, measurement))
    several = len(extractors) > 1
    measured = [
        replace(measure(*given), model=str(model) if several else None, seen=seen[model])
        for model, given in measurements
    ]
    return extractors, [*measured, *rivals]


def judged(
    runs: Sequence[EvaluationRun], judge: Extractor, name: str, forms: Sequence[JudgeForm]
) -> list[EvaluationRun]:
    """Returns the runs with a model's verdicts. name: the judge's, in reports."""
    return [
        replace(run, judged=tuple(judge_run(judge, name, run, form) for form in forms))
        for run in runs
    ]
