"""`schemax evaluate`: compares quality, forward passes and speed on annotated documents."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal, get_args

from typer import echo

from schemax.base.messages import say
from schemax.base.options import option
from schemax.base.terminal import show
from schemax.commands import options
from schemax.commands.options import (
    UsageError,
    argument,
    listed,
    numbers_of,
    plain_warnings,
    verb,
)
from schemax.evaluation.cascades import curve_of
from schemax.evaluation.comparison import compare, corrected_comparisons
from schemax.evaluation.evaluate import ALONE, judged, measure_settings, origin_of, setting_of
from schemax.evaluation.judge import JudgeForm
from schemax.evaluation.paper_table import Form, summaries, written_table
from schemax.evaluation.reliability import check_picture, plot_reliability
from schemax.evaluation.runs import check_alike, read_run
from schemax.evaluation.tables import comparison_shown, curve_shown, runs_shown
from schemax.extraction.extractor import Extractor


class Args(options.Cascade, options.Server, options.Prompt, options.Labels):
    """Options"""

    data: Path | None = argument("INPUT", default=None)
    """JSONL with one {"category", "text", "attributes": {name: value}} per line, and optionally
    "id" and "description"; or a JSON export of Label Studio. In a folder: test.jsonl, and
    attributes.json if present."""
    shots: str | None = option("N,N")
    """The first so many of --examples of every category, 0 for none; or several numbers
    separated by commas, 0,4,16, each a setting of its own. Default: all."""
    decoding: str | None = None
    """isolated, paper or autoregressive, or several separated by commas; each may have changes
    (isolated:layout=gapped:slots=causal) and +alone, which asks for every field separately.
    Default: the one that the model was trained for, else isolated; autoregressive for a server
    that is asked by chat."""
    judge: str | None = option("MODEL or URL#MODEL")
    """A model that judges every value, annotated or not; or a server, asked by chat."""
    saved: tuple[Path, Path] | None = option("--compare A.json B.json")
    """Instead of INPUT: two results that --json --details wrote."""

    predictions: list[str] | None = option("FILE")
    """Predictions of another system for INPUT, as JSONL with one {"id", "attributes"} per line, are
    scored too. Several files are separated by commas, or the option is repeated. Without --model,
    --server and --decoding, no model is loaded."""

    """The report"""

    by: Literal["category", "attribute", "confidence"] = "category"
    """category; attribute: also the counts of every attribute; confidence: also how reliable
    confidences are, bin by bin."""
    reliability: Path | None = option("FILE")
    """Draw reliability, and risk over coverage: a .svg, .png or .pdf file. Requires matplotlib (the
    extra plots)."""
    price_per_hour: float | None = option(min=0.0)
    """Price of the machine, in dollars: the cost of 1,000 documents stands beside F1."""
    judge_form: Literal["value", "product", "both"] = "value"
    """The judge sees a value at a time; all values of a product, after an explanation; or both."""
    as_json: bool = option("--json", default=False)
    """The figures as JSON."""
    table: Form | None = None
    """Print one table, with a row per setting and means over seeds, as latex, csv or markdown."""
    details: bool = False
    """Add labels and predictions to --json."""


@verb
def evaluate(args: Args) -> None:
    """Scores extractions against annotations, by the protocol of ExtractGPT and strictly.

    Every setting reads the same documents, in the same run; F1 counts exact matches. Examples whose
    text is also in INPUT are left out. The strict score takes an attribute that is not annotated as
    null. Later settings are compared with the
    first one, document by document; so are several models, separated by commas: --model base,tuned.
    With --escalate-to: both models alone, their cascade, and its curve over --escalate-below; no
    curve with --precision.
    """
    if args.reliability is not None:
        check_picture("--reliability", args.reliability)
    if args.saved is not None:
        if args.data is not None:
            raise UsageError("give INPUT or --compare, not both")
        _compare_saved(args.saved, args.as_json)
        return
    if args.data is None:
        raise UsageError("INPUT is missing")
    if args.details and not args.as_json:
        raise UsageError("--details requires --json")
    args.check()
    usage = "--shots takes numbers, such as 4 or 0,4,16"
    counts = [*dict.fromkeys(numbers_of(args.shots, usage))] if args.shots is not None else []
    if any(counts) and args.examples is None:
        raise UsageError("--shots requires --examples, but for --shots 0")
    if args.table is not None and args.as_json:
        raise UsageError("give --table or --json, not both")
    names = [name.strip() for name in (args.decoding or "").split(",")]
    files = [Path(name) for text in args.predictions or [] for name in listed(text)]
    if args.predictions and not files:
        raise UsageError("--predictions names no file")
    loads = not files or args.server or args.decoding
    models_named: list[str | None] = [None] if loads else []
    if args.model:
        models_named = [name.strip() for name in args.model.split(",")]
    data = args.dataset(args.data, "test")
    decodings = [
        (name, replace(args, decoding=name.removesuffix(ALONE) or None).settings())
        for name in names
    ]
    several = [*models_named[1:], *decodings[1:], *counts[1:], *files]
    if args.escalate_to is not None and several:
        raise UsageError(
            "--escalate-to takes one --model, one --decoding, one of --shots, and no --predictions"
        )
    with plain_warnings():
        parts = {} if args.escalate_to is None else _parts(args.extractor(args.prompt))
        models, runs = measure_settings(
            data,
            [*parts] or models_named,
            decodings,
            lambda name: parts[name] if parts else replace(args, model=name).extractor(args.prompt),
            limit=args.limit,
            shots=args.examples,
            counts=counts,
            schema_examples=args.schema_examples,
            predictions=files,
        )
        runs = [replace(run, dollars_per_hour=args.price_per_hour) for run in runs]
        points = []
        if parts:
            alone, later, cascade = runs
            further = [*parts.values()][-1].further
            if further is not None and not further.keeps_promised:  # else no threshold is chosen
                points = curve_of(alone, later, cascade, further)
        if (judge := args.judge) is not None:
            if options.is_address(judge):
                judging = options.by_chat(judge)
            else:
                same = args.server is None and args.prompt is None and models.get(judge)
                judging = same or options.load_extractor(judge, args.device, args.dtype)
            form = args.judge_form
            runs = judged(runs, judging, judge, get_args(JudgeForm) if form == "both" else (form,))
    comparisons = corrected_comparisons(
        [compare(run.examples, runs[0].predictions, run.predictions) for run in runs[1:]]
    )
    if args.as_json:
        origins = {
            str(name) if len(models) > 1 else None: origin_of(extractor, name, data.file)
            for name, extractor in models.items()
        }
        rows = [
            run.to_data(details=args.details)
            | {"origin": origin_of(None, run.file, data.file) if run.file else origins[run.model]}
            for run in runs
        ]
        for row, comparison in zip(rows[1:], comparisons, strict=True):
            row["against"] = runs[0].names | asdict(comparison)
        if points:
            rows[-1]["curve"] = [point._asdict() for point in points]
        echo(json.dumps(rows, indent=2))
    elif args.table is not None:
        echo(written_table([*summaries(runs, comparisons)], args.table))
    else:
        setting = "\n".join(dict.fromkeys(map(setting_of, models.values())))
        show(*runs_shown(runs, comparisons, setting, by=args.by))
        if points:
            show(*curve_shown(points))
    if (picture := args.reliability) is not None:
        curves = [(run.name, curve) for run in runs if (curve := run.reliability) is not None]
        if curves:
            plot_reliability(curves, picture)
        else:
            say(f"note: {picture} is not written: no predicted value has a confidence")


def _parts(cascade: Extractor) -> dict[str | None, Extractor]:
    """Returns both models of a cascade, and the cascade, by the names of their runs."""
    assert cascade.further is not None
    first, later = copy(cascade), cascade.further.extractor
    first.further = None
    names = first.name, later.name if later.name != first.name else f"{later.name} (next)"
    return {names[0]: first, names[1]: later, f"{names[0]}, then {names[1]}": cascade}


def _compare_saved(paths: tuple[Path, Path], as_json: bool) -> None:
    names = str(paths[0]), str(paths[1])
    first, second = map(read_run, paths)
    check_alike(first, second, names)
    comparison = compare(first.examples, first.predictions, second.predictions)
    if as_json:
        runs = zip(("first", "second"), names, (first, second), strict=True)
        sides = {side: {"file": file, "decoding": run.name} for side, file, run in runs}
        echo(json.dumps(sides | asdict(comparison), indent=2))
    else:
        show(*comparison_shown(comparison, *names))
