"""A run of fitting: takes labelled documents, returns a prompt file and its gain."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.attributes import compile_attributes, settings_of
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
from schemax.training.fitting.search import (
    FEWEST_FOR_INTERVAL,
    SIZES,
    Candidate,
    OutOfTime,
    Search,
    Trial,
)
from schemax.training.fitting.split import Split, coverage_order, split_rows

READY_MADE = ("verbatim", "standard", "generic")
NEAREST = (4, 8)
MIN_PROBABILITY = (0.0, 0.1, 0.3)
MOST_SHOWN = 1000
"""The most rows of a category that documents choose their demonstrations from."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """The chosen prompt, with the trials of the search.

    chosen: the best candidate; the first trial's if nothing was better than the current prompt.
    before, after: scores on the held-out documents, without a prompt file and with this one.
    """

    prompt: PromptFile
    chosen: Candidate
    trials: Sequence[Trial]
    before: Scores
    after: Scores

    @property
    def changes_nothing(self) -> bool:
        return self.chosen == self.trials[0].candidate

    def gain(self, *, strict: bool = False) -> Interval | None:
        """Returns the 95 % interval of F1(after) - F1(before): paired bootstrap over documents;
        None for fewer than ten documents."""
        if self.after.products < FEWEST_FOR_INTERVAL:
            return None
        return difference_interval(
            self.before.counts(strict=strict), self.after.counts(strict=strict)
        )

    def lines(self) -> Iterator[str]:
        """Yields the gain on the held-out documents, as text."""
        held_out = f"{counted(self.after.products, 'document')} held out"
        if self.after.products < FEWEST_FOR_INTERVAL:
            held_out += (
                f", too few to tell whether the prompt file is better: intervals need "
                f"{FEWEST_FOR_INTERVAL}, which {5 * FEWEST_FOR_INTERVAL} labels have"
            )
        yield f"{held_out}:"
        for name, strict in (("F1", False), ("strict F1", True)):
            before, after = (_f1(scores, strict) for scores in (self.before, self.after))
            gain = self.gain(strict=strict)
            difference = (
                "" if gain is None else f"; the difference is {gain.low:+.3f} to {gain.high:+.3f}"
            )
            yield f"{name}: {before} before, {after} with the prompt file{difference}"


def _f1(scores: Scores, strict: bool) -> str:
    f1 = (scores.strict if strict else scores.protocol).f1
    if scores.products < FEWEST_FOR_INTERVAL:
        return f"{f1:.3f}"
    interval = f1_interval(scores.counts(strict=strict))
    return f"{f1:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def fit(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    *,
    seconds: float = 600.0,
    started: float | None = None,
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
    seconds: the time for all, including earlier runs in the sidecar.
    started: the value of `time.monotonic` when the time began; None: now.
    templates: name -> text of further templates.
    format: for all categories; None: their own.
    sidecar: a file of measured outcomes and trials; a run resumes from it.
    model: identifies the model in the sidecar; None: a digest of its weights.
    tell: receives a line per trial.

    Raises InputError for too few documents, if the time ends before the first measurement, and for
    a prompt that is worse on the held-out documents, by the 95 % interval; ValueError for a
    cascade, whose models each have a prompt of their own.
    """
    if extractor.further is not None:
        raise ValueError("fit the models of a cascade each by itself, before they are joined")
    started = time.monotonic() if started is None else started
    plain = copy(extractor)
    plain.defaults = replace(extractor.defaults, prompt=PromptFile())
    split = split_rows(examples, seed)
    shown = _demonstrations(examples, schemas, split, tell)
    named = _templates(plain, schemas, templates or {})
    work = Work(plain, examples, schemas, shown, named, format, _current(plain, schemas, named))
    with closing(Trials(sidecar, _digest(work, split, model))) as trials:
        if trials.known:
            tell(
                f"{trials.known} measured answers are in {sidecar}; the run resumes behind them, "
                "with the time that they leave"
            )
        over = started + seconds - trials.seconds
        held_out = [examples[row] for rows in split.held_out.values() for row in rows]
        deciding = [examples[row] for rows in split.deciding.values() for row in rows]
        is_calibrated = sum(len(example.attributes) for example in deciding) >= FEWEST
        # After the search, the held-out documents are read with the best prompt; calibrating reads
        # the deciding documents once more.
        last = len(held_out) + len(deciding) * is_calibrated

        def allowed(candidate: Candidate, count: int) -> float:
            """Returns the seconds that reading `count` documents may take now, such that the rest
            of the run can follow; 0 if they are expected to take longer.

            A candidate that was never read is expected to be as fast as the best.
            """
            left, rates = over - time.monotonic(), trials.rates
            best = rates.get(str(search.best), max(rates.values(), default=0.0))
            rest = 0.0 if search.best == work.current else last * best
            # The candidate that is read now may be the slowest of all, and win.
            seconds = min(left - rest, left * count / (count + last))
            return seconds if count * rates.get(str(candidate), best) <= seconds else 0.0

        measure = measuring(work, trials, allowed)
        search = Search(
            measure,
            split.deciding,
            best=work.current,
            content=work.content,
            seed=seed,
            **_space(work, split),
        )

        def tell_trial(trial: Trial) -> None:
            trials.record(trial)
            left = max(0.0, over - time.monotonic())
            each = max(1e-9, trials.seconds / trial.number)
            about = min(search.expected, trial.number + int(left / each))
            if trial.number == 1 and not trials.known:
                spent = seconds - max(0.0, left - (about - 1) * each)
                tell(
                    f"expected: about {about} of {search.expected} trials, in {spent:.0f} of "
                    f"{seconds:g} seconds; prompts with demonstrations may take longer"
                )
            tell(f"trial {trial.number} of about {max(about, trial.number)}: {trial}")

        search.tell = tell_trial
        try:
            measure(work.current, search.all_rows)
        except OutOfTime:
            raise InputError(
                f"{seconds:g} seconds are too few to measure the current prompt on "
                f"{len(deciding)} documents, and then on {len(held_out)} more; give more time"
            ) from None
        # Read now: the model has just read the same prompt, and the rest of the time is known.
        before = after = _scores(plain, held_out, schemas, format)
        chosen = search.run()
    prompt = work.prompt(chosen)
    if chosen != work.current:
        tell("reading the documents held out with the new prompt")
        prompt = _whole(work, chosen, split, deciding if is_calibrated else ())
        after = _scores(plain.with_prompt(prompt), held_out, schemas, format)
    result = FitResult(prompt, chosen, search.trials, before, after)
    gain = result.gain()
    if gain is not None and gain.high < 0:
        raise InputError(
            f"refused: {chosen} is worse than the current prompt on the {len(held_out)} documents "
            f"held out: the difference of F1 is {gain.low:+.3f} to {gain.high:+.3f}. Stay with the "
            "current prompt, or label more documents"
        )
    return result


def _scores(
    reader: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    format: str | None,
) -> Scores:
    return scores_of(examples, extractions_of(reader, examples, schemas, format=format), schemas)


def _demonstrations(
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    split: Split,
    tell: Callable[[str], None],
) -> dict[int, Demonstration]:
    """Returns rows that are not held out as demonstrations; drops misfits from the pool."""
    names, shown = row_ids(examples), dict[int, Demonstration]()
    for category, rows in split.pool.items():
        for row in (*rows, *split.deciding[category]):
            example = examples[row]
            try:
                labelled_instance(names[row], category, example.stated, schemas[category])
                shown[row] = _demonstration(example, names[row], schemas[category])
            except InputError as error:
                tell(f"never shown: {error}")
        split.pool[category] = [row for row in rows if row in shown]
    return shown


def _templates(
    extractor: Extractor, schemas: Mapping[str, type[BaseModel]], more: Mapping[str, str]
) -> dict[str, str | None]:
    """Returns texts of templates by name; the template without a prompt file comes first."""
    own = any(extractor.defaults.named_template(schema) for schema in schemas.values())
    usual = usual_template(extractor.defaults.decoding)
    first = ("its own template", None) if own else (usual, template_source(usual))
    return dict([first]) | {name: template_source(name) for name in READY_MADE} | dict(more)


def _current(
    extractor: Extractor, schemas: Mapping[str, type[BaseModel]], templates: Mapping[str, Any]
) -> Candidate:
    """Returns the current prompt as a candidate.

    For models that schemax did not train, it names the settings that candidates without its
    template would lose.
    """
    name = next(iter(templates))
    if extractor.defaults.is_trained or not _has_slots(extractor):
        return Candidate(name)
    configs = [extractor.defaults.decoding_and_template(schema)[0] for schema in schemas.values()]
    return Candidate(
        name,
        constrain="document"
        if all(config.constrain == "document" for config in configs)
        else "types",
        contextual_calibration=all(config.contextual_calibration for config in configs),
    )


def _has_slots(extractor: Extractor) -> bool:
    """Returns True if decoding can constrain values to their types or their documents."""
    return extractor.defaults.decoding.is_held and not isinstance(extractor.model, RemoteModel)


def _space(work: Work, split: Split) -> dict[str, Any]:
    """Returns what a `Search` tries for this model; rows that cover most come first."""
    extractor, current = work.extractor, work.current
    labels = {row: work.examples[row].stated for row in work.demonstrations}
    pool = {}
    for category, rows in split.pool.items():
        names = list(titles_of(compile_attributes(work.schemas[category])).values())
        pool[category] = coverage_order(rows, labels, names, SIZES[-1])[:MOST_SHOWN]
    config = extractor.defaults.decoding
    slots = _has_slots(extractor)
    alternative: Constrain = (
        "types" if (current.constrain or config.constrain) == "document" else "document"
    )
    scored = current.contextual_calibration
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
        "min_probability": MIN_PROBABILITY if slots else (),
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


def _whole(work: Work, chosen: Candidate, split: Split, deciding: Sequence[Example]) -> PromptFile:
    """Returns the candidate as a prompt file, calibrated if `deciding` is not empty."""
    prompt = whole = work.prompt(chosen)
    if chosen.nearest:
        # The choice is made, so the deciding rows may be shown, too.
        more = {
            name: (*rows, *(row for row in split.deciding[name] if row in work.demonstrations))
            for name, rows in chosen.shown.items()
        }
        whole = work.prompt(chosen.with_rows(more))
    if not deciding:
        return whole
    try:
        fit = calibrate(work.extractor.with_prompt(prompt), deciding, work.schemas, [work.format])
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
