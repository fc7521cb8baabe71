"""`schemax evaluate`: quality, forward passes and speed on annotated documents, side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel
from typer import echo

from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, say
from schemax.commands.datasets import Dataset, as_shown, dataset, note_texts, schemas_for
from schemax.commands.evaluate_tables import show_comparison, show_runs
from schemax.commands.few_shot import Shots, counts_of
from schemax.commands.option_groups import argument, grouped, option
from schemax.commands.options import LoadingOptions
from schemax.commands.prompted import prompted
from schemax.commands.server_options import ServerOptions, by_chat, is_address
from schemax.config import decoding_name
from schemax.evaluation.comparison import compare
from schemax.evaluation.examples import duplicated_ids, read_examples
from schemax.evaluation.judge import JudgeForm
from schemax.evaluation.measure import ALONE, ShotsByCategory, judge_run, measure, setting_of
from schemax.evaluation.plots import check_picture, plot_reliability
from schemax.evaluation.runs import check_alike, read_run
from schemax.evaluation.schemas import as_declared
from schemax.messages import counted, some_of


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The report"""

    by: Literal["category", "attribute", "confidence"] = option(
        "category; attribute: also the counts of every attribute; confidence: also how reliable "
        "confidences are, bin by bin.",
        default="category",
    )
    reliability: Path | None = option(
        "Draw reliability, and risk over coverage: a .svg, .png or .pdf file. Requires matplotlib "
        "(the extra plots).",
        metavar="FILE",
    )
    price_per_hour: float | None = option(
        "Of the machine, in dollars: what 1,000 documents cost stands beside F1.", min=0.0
    )
    judge_form: Literal["value", "product", "both"] = option(
        "Of --judge: a value at a time; all values of a product, after an explanation; or both.",
        default="value",
    )
    as_json: bool = option("The figures as JSON.", "--json", default=False)
    details: bool = option("With --json: labels and predictions as well.", default=False)


@grouped
def evaluate(
    report: ReportOptions,
    server: ServerOptions,
    data: Path | None = argument(
        'JSONL with one {"category", "text", "attributes": {name: value}} per line, and '
        'optionally "id" and "description"; or a JSON export of Label Studio. In a folder: '
        "test.jsonl, and attributes.json if present.",
        "INPUT",
        default=None,
    ),
    spec: options.Schemas = None,
    schema_examples: options.SchemaExamples = None,
    model: options.Model = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    *,
    loading: LoadingOptions,
    format: options.Format = None,
    template: options.Template = None,
    shown: options.Examples = None,
    shots: str | None = option(
        "The first so many of --examples of every category, 0 for none; or several numbers "
        "separated by commas, 0,4,16, each a setting of its own. Default: all.",
        metavar="N,N",
        rich_help_panel=options.MODEL_PANEL,
    ),
    decoding: str | None = option(
        "isolated, paper or autoregressive, or several separated by commas; each may have changes "
        "(isolated:layout=gapped:slots=causal) and +alone, which asks for every field separately. "
        "Default: the one that the model was trained for, else isolated; autoregressive for a "
        "server that is asked by chat."
    ),
    prompt: options.Prompt = None,
    limit: options.Limit = None,
    judge: str | None = option(
        "A model that judges every value, annotated or not; or a server, asked by chat.",
        metavar="MODEL or URL#MODEL",
    ),
    saved: tuple[Path, Path] | None = option(
        "Instead of INPUT: two results that --json --details wrote.",
        "--compare",
        metavar="A.json B.json",
    ),
) -> None:
    """Scores extractions against annotations, by the protocol of ExtractGPT and strictly.

    Every setting reads the same documents, in the same run; F1 counts exact matches. Examples whose
    text is also in INPUT are left out. The strict
    score takes an attribute that is not annotated as null. Later settings are compared with the
    first one, document by document; so are several models, separated by commas: --model base,tuned.
    """
    picture = report.reliability
    if picture is not None:
        check_picture("--reliability", picture)
    if saved is not None:
        if data is not None:
            raise UsageError("give INPUT or --compare, not both")
        _compare_saved(saved, report.as_json)
        return
    if data is None:
        raise UsageError("INPUT is missing")
    if report.details and not report.as_json:
        raise UsageError("--details requires --json")
    server.check(device, dtype, loading.named())
    wanted = counts_of(shots)
    if any(wanted) and shown is None:
        raise UsageError("--shots requires --examples, but for --shots 0")
    names = [name.strip() for name in (decoding or "").split(",")]
    checked = [
        options.checked_settings(format, template, name.removesuffix(ALONE) or None)
        for name in names
    ]
    found = dataset(data, "test", spec)
    examples = read_examples(found.file)
    tested = {example.text for example in examples}
    examples = examples[:limit]
    if repeated := duplicated_ids(examples):
        say(f"note: several documents have the same id: {some_of(repeated)}")
    models = [name.strip() for name in model.split(",")] if model else [None]
    with plain_warnings(quiet=report.as_json):
        extractors = {
            name: server.reader(name, device, dtype, loading.named(), prompt) for name in models
        }
        schemas = schemas_for(found.schemas, examples, extractors.values())
        note_texts(found.schemas, examples, extractors.values())
        examples = as_declared(examples, schemas)
        extractors = {
            name: prompted(one, schemas, examples, found.file, made=found.schemas is None)
            for name, one in extractors.items()
        }
        there = None if shown is None else _shots(shown, wanted, schemas, tested, found)
        counts: Sequence[int | None] = wanted or [None if there is None else there.most]
        asked = []
        for named, extractor in extractors.items():
            options.note_trained(named, extractor, checked[0], shown or shots)
            own_schemas = as_shown(schemas, found.schemas, examples, extractor, schema_examples)
            for name, settings in zip(names, checked, strict=True):
                own = name or decoding_name(extractor.decoding)
                for count in counts:
                    pairs = _pairs(there, count, own_schemas)
                    # What cannot be read is said now, and not after hours of other settings.
                    extractor.stream(
                        (), own_schemas, category="category", examples=pairs, **settings
                    )
                    asked.append((named, extractor, own_schemas, own, settings, count, pairs))
        runs = []
        for named, extractor, own_schemas, own, settings, count, pairs in asked:
            if sys.stderr.isatty():  # a bar would cost time that is being measured
                behind = "" if count is None else f" behind {counted(count, 'example')}"
                say(f"{own}: {counted(len(examples), 'document')}{behind} ...")
            run = measure(extractor, examples, own_schemas, own, settings, count, pairs)
            runs.append(replace(run, model=str(named)) if len(extractors) > 1 else run)
        runs = [replace(run, dollars_per_hour=report.price_per_hour) for run in runs]
        if judge is not None:
            if is_address(judge):
                judging = by_chat(judge)
            else:
                same = server.server is None and prompt is None and extractors.get(judge)
                judging = same or options.load_extractor(judge, device, dtype)
            forms = get_args(JudgeForm) if report.judge_form == "both" else (report.judge_form,)
            runs = [
                replace(run, judged=tuple(judge_run(judging, judge, run, form) for form in forms))
                for run in runs
            ]
    comparisons = [compare(examples, runs[0].predictions, run.predictions) for run in runs[1:]]
    if report.as_json:
        data_of_runs = [run.to_data(details=report.details) for run in runs]
        for row, comparison in zip(data_of_runs[1:], comparisons, strict=True):
            row["against"] = runs[0].names | asdict(comparison)
        echo(json.dumps(data_of_runs, indent=2))
    else:
        setting = "\n".join(dict.fromkeys(map(setting_of, extractors.values())))
        show_runs(runs, comparisons, setting, by=report.by)
    if picture is not None:
        known = [(run.name, one) for run in runs if (one := run.reliability) is not None]
        if known:
            plot_reliability(known, picture)
        else:
            say(f"note: {picture} is not written: no predicted value has a confidence")


def _shots(
    file: Path,
    counts: Sequence[int],
    schemas: Mapping[str, type[BaseModel]],
    tested: Set[str],
    data: Dataset,
) -> Shots:
    """The examples of a file, without those that stand in `data`, whose texts are `tested`."""
    there = Shots.read(file, schemas).without(tested, data.file)
    if counts:
        there.note_lacking(max(counts))
        there = there.first(max(counts))
    return there.asked_by(schemas) if data.schemas is None else there


def _pairs(
    there: Shots | None, count: int | None, schemas: Mapping[str, type[BaseModel]]
) -> ShotsByCategory | None:
    """What prompts show of them; None where nobody said."""
    if count is None:
        return None
    return {name: [] for name in schemas} if there is None else there.first(count).of(schemas)


def _compare_saved(paths: tuple[Path, Path], as_json: bool) -> None:
    names = str(paths[0]), str(paths[1])
    first, second = map(read_run, paths)
    check_alike(first, second, names)
    found = compare(first.examples, first.predictions, second.predictions)
    if as_json:
        sides = {
            side: {"file": file, "decoding": run.name}
            for side, file, run in zip(("first", "second"), names, (first, second), strict=True)
        }
        echo(json.dumps(sides | asdict(found), indent=2))
    else:
        show_comparison(found, *names)
