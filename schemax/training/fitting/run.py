"""A run of fitting: takes labelled documents, returns a prompt file and its gain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.attributes import compile_attributes, settings_of
from schemax.attributes.examples import FewShotExample
from schemax.base.calibration import Calibration
from schemax.base.messages import counted
from schemax.base.resources import version
from schemax.compiler.prompt import template_source, usual_template
from schemax.config import Constrain
from schemax.errors import InputError
from schemax.evaluation.calibrate import FEWEST, calibrate
from schemax.evaluation.examples import Example, row_ids, shown_text
from schemax.evaluation.labelled_schemas import lists_of
from schemax.evaluation.scores import (
    Interval,
    Scores,
    difference_interval,
    extractions_of,
    f1_interval,
    scores_of,
)
from schemax.extraction.extractor import Extractor
from schemax.extraction.labels import labelled_instance
from schemax.extraction.prompt_file import Demonstration, PromptFile
from schemax.extraction.stated import titles_of
from schemax.io import fingerprint
from schemax.servers.remote import RemoteModel
from schemax.training.fitting.measuring import Trials, Work, measuring
from schemax.training.fitting.search import SIZES, Candidate, Search, Trial
from schemax.training.fitting.split import Split, coverage_order, split_rows

SEARCHING = 0.8
"""The share of the time for the search; then held-out documents are read and values calibrated."""

READY_MADE = ("verbatim", "standard", "generic")
NEAREST = (4, 8)
MOST_SHOWN = 1000
"""The most rows of a category that documents choose their demonstrations from."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """The chosen prompt, with the trials of the search.

    before, after: scores on the held-out documents, without a prompt file and with this one.
    """

    prompt: PromptFile
    chosen: Candidate
    trials: Sequence[Trial]
    before: Scores
    after: Scores

    def gain(self, *, strict: bool = False) -> Interval:
        """Returns the 95 % interval of F1(after) - F1(before): paired bootstrap over documents."""
        return difference_interval(
            self.before.counts(strict=strict), self.after.counts(strict=strict)
        )

    def lines(self) -> Iterator[str]:
        """Yields the gain on the held-out documents, as text."""
        yield f"{counted(self.after.products, 'document')} held out:"
        for name, strict in (("F1", False), ("strict F1", True)):
            before, after = (_f1(scores, strict) for scores in (self.before, self.after))
            gain = self.gain(strict=strict)
            yield (
                f"{name}: {before} before, {after} with the prompt file; the difference is "
                f"{gain.low:+.3f} to {gain.high:+.3f}"
            )


def _f1(scores: Scores, strict: bool) -> str:
    interval = f1_interval(scores.counts(strict=strict))
    f1 = (scores.strict if strict else scores.protocol).f1
    return f"{f1:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def fit(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    *,
    seconds: float = 600.0,
    templates: Mapping[str, str] | None = None,
    format: str | None = None,
    sidecar: Path | None = None,
    model: Mapping[str, Any] | None = None,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> FitResult:
    """Chooses a prompt for a model by labelled documents. No weights are trained.

    examples: as `as_declared` returns them.
    schemas: by category.
    seconds: the time, including earlier runs in the sidecar; four fifths of it are for the search.
    templates: name -> text of further templates.
    format: for all categories; None: their own.
    sidecar: a file of measured outcomes; a run that was killed resumes from it.
    model: identifies the model in the sidecar; None: a digest of its weights.
    tell: receives a line per trial.

    Raises InputError for too few documents, and if the time ends before the first measurement.
    """
    plain = _without_prompt(extractor)
    split = split_rows(examples, seed)
    shots = _shots(examples, schemas, split, tell)
    work = Work(
        plain, examples, schemas, shots, _templates(plain, schemas, templates or {}), format
    )
    digest = _digest(work, split, model)
    with closing(Trials(sidecar, digest)) as trials:
        if trials.known:
            tell(f"{trials.known} measured answers are in {sidecar}; the run resumes behind them")
        searching = SEARCHING * seconds
        measure = measuring(work, trials, searching)
        first = _first(work)
        space = _space(work, split, first)
        search = Search(measure, split.deciding, best=first, seed=seed, **space)

        def tell_trial(trial: Trial) -> None:
            left = max(0.0, searching - trials.seconds)
            usual = trials.seconds / trial.number
            about = min(search.expected, trial.number + int(left / max(usual, 1e-9)))
            better = ", the best so far" if trial.better and trial.number > 1 else ""
            tell(
                f"trial {trial.number} of about {max(about, trial.number)}: {trial.candidate}: "
                f"F1 {trial.f1:.3f} +- {trial.half_width:.3f} on "
                f"{counted(trial.documents, 'document')}{better}"
            )

        search.tell = tell_trial
        chosen = search.run()
    if not search.trials:
        raise InputError(
            f"{seconds:g} seconds were over before the current prompt was measured on "
            f"{sum(map(len, split.deciding.values()))} documents; give more time"
        )
    prompt = _prompt_file(work, chosen, split)
    tell("reading the documents held out, without the prompt and with it")
    held_out = [examples[row] for rows in split.held_out.values() for row in rows]
    before, after = (
        scores_of(held_out, extractions_of(reader, held_out, schemas, format=format), schemas)
        for reader in (_without_prompt(extractor, raw=False), plain.with_prompt(prompt))
    )
    return FitResult(prompt, chosen, search.trials, before, after)


def _without_prompt(extractor: Extractor, *, raw: bool = True) -> Extractor:
    """Returns the extractor without a prompt file; raw: without a calibration, too."""
    bare = copy(extractor)
    calibration = Calibration() if raw else extractor.defaults.calibration
    bare.defaults = replace(extractor.defaults, prompt=PromptFile(), calibration=calibration)
    return bare


def _shots(
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    split: Split,
    tell: Callable[[str], None],
) -> dict[int, FewShotExample]:
    """Returns rows that are not held out as examples; drops misfits from the pool."""
    names, shots = row_ids(examples), dict[int, FewShotExample]()
    for category, rows in split.pool.items():
        for row in (*rows, *split.deciding[category]):
            example = examples[row]
            try:
                schema = schemas[category]
                instance = labelled_instance(names[row], category, example.stated, schema)
                shots[row] = shown_text(names[row], example), instance
            except InputError as error:
                tell(f"never shown: {error}")
        split.pool[category] = [row for row in rows if row in shots]
    return shots


def _templates(
    extractor: Extractor, schemas: Mapping[str, type[BaseModel]], more: Mapping[str, str]
) -> dict[str, str | None]:
    """Returns texts of templates by name; the template without a prompt file comes first."""
    own = any(extractor.defaults.named_template(schema) for schema in schemas.values())
    usual = usual_template(extractor.defaults.decoding)
    first = ("its own template", None) if own else (usual, template_source(usual))
    return dict([first]) | {name: template_source(name) for name in READY_MADE} | dict(more)


def _first(work: Work) -> Candidate:
    """Returns the current prompt as a candidate.

    For models that schemax did not train, it names the settings that a prompt file leaves out.
    """
    extractor, name = work.extractor, next(iter(work.templates))
    if extractor.defaults.is_trained or not _has_slots(extractor):
        return Candidate(name)
    settled = [extractor.defaults.settled(schema)[0] for schema in work.schemas.values()]
    return Candidate(
        name,
        constrain="document"
        if all(config.constrain == "document" for config in settled)
        else "types",
        contextual_calibration=all(config.contextual_calibration for config in settled),
    )


def _has_slots(extractor: Extractor) -> bool:
    """Returns True if decoding can constrain values to their types or their documents."""
    return extractor.defaults.decoding.is_held and not isinstance(extractor.model, RemoteModel)


def _space(work: Work, split: Split, first: Candidate) -> dict[str, Any]:
    """Returns what a `Search` tries for this model; rows that cover most come first."""
    extractor = work.extractor
    labels = {row: work.examples[row].stated for row in work.shots}
    pool = {}
    for category, rows in split.pool.items():
        names = list(titles_of(compile_attributes(work.schemas[category])).values())
        pool[category] = coverage_order(rows, labels, names, SIZES[-1])[:MOST_SHOWN]
    config = extractor.defaults.decoding
    slots = _has_slots(extractor)
    alternative: Constrain = (
        "types" if (first.constrain or config.constrain) == "document" else "document"
    )
    scored = first.contextual_calibration
    scored = config.contextual_calibration if scored is None else scored
    nearest = config.documents == "isolated" and not extractor.model.refusal(
        replace(config, nearest_examples=NEAREST[0])
    )
    chosen = any(
        attribute.kind in ("enum", "boolean")
        for schema in work.schemas.values()
        for attribute in compile_attributes(schema)
    )
    return {
        "pool": pool,
        "templates": tuple(work.templates),
        "constrain": (alternative,) if slots else (),
        "contextual_calibration": (not scored,) if slots and chosen else (),
        "nearest": NEAREST if nearest else (),
    }


def _digest(work: Work, split: Split, model: Mapping[str, Any] | None) -> str:
    """Returns a digest of all that outcomes depend on, apart from the time."""
    extractor = work.extractor
    model = fingerprint.of_loaded(extractor) if model is None else model
    basis = {
        "version": version(),
        "model": dict(model),
        "template": str(extractor.defaults.template),
        **fingerprint.of_schemas(work.schemas),
        **fingerprint.of_settings(extractor.defaults.decoding, extractor.defaults.calibration),
        "templates": dict(work.templates),
        "format": work.format or str(extractor.defaults.format),
        "formats": [settings_of(schema).format for schema in work.schemas.values()],
        "examples": [repr(example) for example in work.examples],
        "split": [split.pool, split.deciding, split.held_out],
    }
    return fingerprint.digest(json.dumps(basis, sort_keys=True, default=str))


def _prompt_file(work: Work, chosen: Candidate, split: Split) -> PromptFile:
    """Returns the candidate as a prompt file, calibrated if there are enough labels."""
    names = row_ids(work.examples)

    def demonstrations(shown: Mapping[str, Sequence[int]]) -> tuple[Demonstration, ...]:
        return tuple(
            _demonstration(work.examples[row], names[row], work.schemas[category])
            for category in work.schemas
            for row in shown.get(category, ())
        )

    prompt = PromptFile(
        template=work.templates[chosen.template],
        format=work.format,
        decoding=work.decoding(chosen),
        demonstrations=demonstrations(chosen.shown),
    )
    shown = chosen.shown
    if chosen.nearest:
        # The choice is made, so the deciding rows may be shown, too.
        shown = {
            name: (*rows, *(row for row in split.deciding[name] if row in work.shots))
            for name, rows in shown.items()
        }
    whole = replace(prompt, demonstrations=demonstrations(shown))
    deciding = [work.examples[row] for rows in split.deciding.values() for row in rows]
    if sum(len(example.attributes) for example in deciding) < FEWEST:
        return whole
    reader = work.extractor.with_prompt(prompt)
    try:
        fit = calibrate(reader, deciding, work.schemas, [work.format])
    except InputError:  # no value, or none with a confidence
        return whole
    return replace(whole, calibration=fit.calibration)


def _demonstration(example: Example, name: str, schema: type[BaseModel]) -> Demonstration:
    """Returns a labelled document as a person writes it: lists as JSON arrays."""
    lists = lists_of(schema)
    stated = {
        label: json.loads(text) if label in lists and text is not None else text
        for label, text in example.stated.items()
    }
    return Demonstration(example.category, shown_text(name, example), stated)
