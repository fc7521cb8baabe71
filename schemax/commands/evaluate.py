"""`schemax evaluate`: quality, forward passes and speed on annotated documents, side by side."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Literal, get_args

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
from schemax.compiler.few_shot import FewShotExample
from schemax.config import decoding_name
from schemax.evaluation.comparison import compare
from schemax.evaluation.examples import Example, duplicated_ids, read_examples, shown_record
from schemax.evaluation.judge import (
    PRODUCT_TEMPLATE,
    JudgeForm,
    Judgement,
    cases_of,
    product_cases,
    product_judgement,
)
from schemax.evaluation.plots import check_picture, plot_reliability
from schemax.evaluation.runs import EvaluationRun, Judged, check_alike, read_run
from schemax.evaluation.schemas import as_declared, parts_of
from schemax.evaluation.scores import by_attribute, labelled, score_predictions
from schemax.extractor import Extractor
from schemax.messages import counted, some_of
from schemax.progress import track
from schemax.results import Extraction
from schemax.results.lists import without_items
from schemax.servers.remote import RemoteModel
from schemax.tokens import FinishReason

_ALONE = "+alone"
_WARM_UP = 16


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
        options.checked_settings(format, template, name.removesuffix(_ALONE) or None)
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
            run = _measure(extractor, examples, own_schemas, own, settings, count, pairs)
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
                replace(run, judged=tuple(_judged(judging, judge, run, form) for form in forms))
                for run in runs
            ]
    comparisons = [compare(examples, runs[0].predictions, run.predictions) for run in runs[1:]]
    if report.as_json:
        data_of_runs = [run.to_data(details=report.details) for run in runs]
        for row, comparison in zip(data_of_runs[1:], comparisons, strict=True):
            row["against"] = runs[0].names | asdict(comparison)
        echo(json.dumps(data_of_runs, indent=2))
    else:
        setting = "\n".join(dict.fromkeys(map(_setting, extractors.values())))
        show_runs(runs, comparisons, setting, by=report.by)
    if picture is not None:
        known = [(run.name, one) for run in runs if (one := run.reliability) is not None]
        if known:
            plot_reliability(known, picture)
        else:
            say(f"note: {picture} is not written: no predicted value has a confidence")


_Pairs = Mapping[str, Sequence[FewShotExample]]
"""Examples by category, as the extractor takes them."""


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
) -> _Pairs | None:
    """What prompts show of them; None where nobody said."""
    if count is None:
        return None
    return {name: [] for name in schemas} if there is None else there.first(count).of(schemas)


def _examples_of(pairs: _Pairs | None, part: Mapping[str, type[BaseModel]]) -> _Pairs | None:
    """Of schemas that are parts of others: what the examples of these state of their fields."""
    return pairs and {
        category: [(text, _own(value, part[category])) for text, value in pairs[category]]
        for category in part
        if category in pairs
    }


def _own(value: Any, part: type[BaseModel]) -> Any:
    if isinstance(value, part):
        return value
    stated = part.model_fields.keys() & value.model_fields_set
    return {name: getattr(value, name) for name in stated}


def _measure(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    name: str,
    settings: Mapping[str, Any],
    shots: int | None,
    pairs: _Pairs | None,
) -> EvaluationRun:
    """shots: how many examples a prompt shows at most; pairs: these."""
    records = [shown_record(example) for example in examples]
    if sys.stderr.isatty():  # a bar would cost time that is being measured
        behind = "" if shots is None else f" behind {counted(shots, 'example')}"
        say(f"{name}: {counted(len(examples), 'document')}{behind} ...")

    asked = parts_of(schemas) if name.endswith(_ALONE) else [schemas]

    def run(count: int) -> list[list[Extraction[Any]]]:
        """By product: what was read of it, in one piece or field by field."""
        found: list[list[Extraction[Any]]] = [[] for _ in records[:count]]
        for part in asked:
            places = [n for n, record in enumerate(records[:count]) if record["category"] in part]
            chosen = [records[n] for n in places]
            own = _examples_of(pairs, part)
            stream = extractor.stream(chosen, part, category="category", examples=own, **settings)
            for item in stream:
                found[places[item.index]].append(item)
        return found

    run(_WARM_UP)
    started = time.perf_counter()
    found = run(len(records))
    seconds = time.perf_counter() - started
    items = [item for parts in found for item in parts]
    values = [
        {name: field.value for item in parts for name, field in item.fields.items()}
        for parts in found
    ]
    predictions = labelled(examples, values, schemas)
    sure = [
        {name: field.confidence for item in parts for name, field in item.fields.items()}
        for parts in found
    ]
    legal = [
        field.legal_probability
        for item in items
        for field in item.fields.values()
        if field.legal_probability is not None
    ]
    ends = Counter(
        field.finish_reason for item in items for field in without_items(item.fields).values()
    )
    return EvaluationRun(
        decoding=name,
        shots=shots,
        examples=examples,
        predictions=predictions,
        confidences=by_attribute(examples, sure, schemas),
        scores=score_predictions(examples, predictions),
        passes=mean(sum(item.steps for item in parts) for parts in found),
        seconds=seconds,
        finish_reasons={reason: ends[reason] for reason in get_args(FinishReason)},
        invalid_fields=sum(
            len({error.field for error in item.errors if error.field is not None}) for item in items
        ),
        invalid_rows=sum(any(item.errors for item in parts) for parts in found),
        failed_rows=sum(not all(item.ok for item in parts) for parts in found),
        legal_mass=mean(legal) if legal else None,
    )


def _judged(judge: Extractor, name: str, run: EvaluationRun, form: JudgeForm) -> Judged:
    """A row without an instance names no class: an unparseable verdict."""
    cases = cases_of(run.examples, run.predictions)
    if form == "value":
        stream = judge.stream([case.text for case in cases], Judgement)
        tracked = track(stream, total=len(cases), unit="verdicts")
        items = sorted(tracked, key=lambda item: item.index)
        found = [None if item.value is None else item.value.verdict for item in items]
        return Judged(name, form, cases, found)
    names = {e.category: list(p) for e, p in zip(run.examples, run.predictions, strict=True)}
    whole = judge.stream(
        product_cases(run.examples, run.predictions),
        {category: product_judgement(own) for category, own in names.items()},
        category="category",
        text="text",
        template=PRODUCT_TEMPLATE,
        decoding="autoregressive",
    )
    said: dict[int, list[Any]] = {}
    for item in track(whole, total=len(run.examples), unit="products"):
        own = names[run.examples[item.index].category]
        values = [field.value for field in item.fields.values()]
        said[item.index] = values[1:] if values else [None] * len(own)
    return Judged(name, form, cases, [v for place in sorted(said) for v in said[place]])


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


def _setting(extractor: Extractor) -> str:
    """Model shape, dtype and hardware: without them a speed says nothing."""
    import platform

    import torch

    model = extractor.model
    if isinstance(model, RemoteModel):
        return f"{model.name}, {model.client.url} ({model.served.kind})"
    parameters = sum(p.numel() for p in model.model.parameters()) / 1e6
    place = (
        torch.cuda.get_device_name(model.device)
        if model.device.type == "cuda"
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    )
    return (
        f"{type(model.model).__name__}, {parameters:.1f} M parameters, "
        f"{str(model.dtype).removeprefix('torch.')}, {place}"
    )
