"""`schemax fit`: chooses a prompt for a model on labelled documents."""

from __future__ import annotations

import re
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, say, show
from schemax.commands.datasets import as_shown, dataset, schemas_for
from schemax.commands.option_groups import argument, grouped, option
from schemax.commands.options import LoadingOptions
from schemax.commands.process import terminable
from schemax.commands.server_options import ServerOptions
from schemax.compiler.prompt import load_template, template_source
from schemax.evaluation.schemas import as_declared
from schemax.messages import counted
from schemax.prompt_file import write_prompt_file

if TYPE_CHECKING:
    from schemax.fitting import Fitted

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


@grouped
def fit(
    data: Path = argument(
        "Labelled documents, as `train` and `evaluate` read them, such as those that were "
        "corrected in the report. In a folder: train.jsonl, without the documents of test.jsonl, "
        "and attributes.json if present.",
        "LABELS",
    ),
    model: options.Model = None,
    output: Path = option(
        "The prompt file.", *("--output", "-o"), default=Path("prompt.json"), metavar="FILE"
    ),
    time: str = option(
        "How long at most: 90s, 10m, 1h. A run that was stopped goes on with what is left of it.",
        default="10m",
        metavar="TIME",
    ),
    spec: options.Schemas = None,
    schema_examples: options.SchemaExamples = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    *,
    loading: LoadingOptions,
    server: ServerOptions,
    format: options.Format = None,
    template: list[str] | None = option(
        "A further template to try, beside verbatim, standard, generic and the model's own; may "
        "be repeated.",
        metavar="FILE",
    ),
    decoding: options.Decoding = None,
    test: Path | None = option(
        "Documents that must not be shown: labels of the same texts are left out. Default: "
        "test.jsonl of the folder.",
        metavar="FILE",
    ),
    limit: options.Limit = None,
    seed: int = option("Which documents are held out, and what is tried by chance.", default=0),
) -> None:
    """Chooses template, demonstrations, their number and order, and how values are decoded, for
    MODEL by labelled documents; 20 are a beginning. No weights are trained.

    Writes one file, which `extract`, `serve`, `evaluate`, `explain`, `calibrate` and `trace` take
    as --prompt, and says what it gains on documents that were held out.
    """
    seconds = _seconds(time)
    if output.is_dir() or not output.parent.is_dir():
        raise UsageError(f"-o names a file in a folder that is there, not {output}")
    settings = options.checked_settings(format, None, decoding)
    templates = {Path(one).name: template_source(one) for one in template or ()}
    for text in templates.values():
        load_template(text)
    server.check(device, dtype, loading.named())
    found = dataset(data, "train", spec)
    # Imported here because they import torch, which takes seconds.
    from schemax.fitting import fit as fitted
    from schemax.fitting.trials import sidecar
    from schemax.training.training_examples import read_training_examples

    with plain_warnings(), terminable():
        examples = read_training_examples(found.file, test or found.test)[:limit]
        extractor = server.reader(model, device, dtype, loading.named())
        extractor = copy(extractor)
        extractor.decoding = settings["decoding"] or extractor.decoding
        schemas = schemas_for(found.schemas, examples, [extractor])
        examples = as_declared(examples, schemas)
        schemas = as_shown(schemas, found.schemas, examples, extractor, schema_examples)
        kept = sidecar(output)
        done = fitted(
            extractor,
            examples,
            schemas,
            seconds=seconds,
            templates=templates,
            format=format,
            sidecar=kept,
            seed=seed,
            tell=say,
        )
    write_prompt_file(done.prompt, output)
    kept.unlink(missing_ok=True)
    show(*_report(done))
    say(f"{output}: {done.chosen}")
    say(f"next: schemax extract SCHEMA INPUT --prompt {output}")


def _report(done: Fitted) -> list[str]:
    """What was gained on the documents held out."""
    lines = [f"{counted(done.after.products, 'document')} held out:"]
    for name, strict in (("F1", False), ("strict F1", True)):
        scores = [one.strict if strict else one.protocol for one in (done.before, done.after)]
        told = [
            f"{one.f1:.3f} ({interval.low:.3f} to {interval.high:.3f})"
            for one, interval in zip(scores, done.intervals(strict=strict), strict=True)
        ]
        gain = done.gain(strict=strict)
        lines.append(
            f"{name}: {told[0]} before, {told[1]} with the prompt file; the difference is "
            f"{gain.low:+.3f} to {gain.high:+.3f}"
        )
    return lines


def _seconds(text: str) -> float:
    """Reads "90s", "10m", "1.5h" and "600". Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not seconds:
        raise UsageError(f"--time must be a time such as 90s, 10m or 1h, not {text!r}")
    return seconds
