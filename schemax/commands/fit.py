"""`schemax fit`: chooses a prompt for a model on labelled documents."""

from __future__ import annotations

import re
import shlex
import time
from copy import copy
from dataclasses import replace
from pathlib import Path

from schemax.base.messages import say
from schemax.base.options import option
from schemax.base.process import terminable
from schemax.base.terminal import show
from schemax.commands import options
from schemax.commands.options import UsageError, argument, plain_warnings, verb
from schemax.compiler.prompt import load_template, template_source
from schemax.evaluation.seen import note_seen
from schemax.extraction.prompt_file import write_prompt_file
from schemax.io.storage import refuse_inputs

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


class Args(options.Server, options.Prompt, options.Labels, without="template examples prompt"):
    """Options"""

    data: Path = argument("LABELS")
    """Labelled documents, as `train` and `evaluate` read them, such as those that were corrected in
    the report. In a folder: train.jsonl, without the documents of test.jsonl, and attributes.json
    if present."""
    output: Path = option("-o FILE", default=Path("prompt.json"))
    """The prompt file."""
    time: str = option("TIME", default="10m")
    """The most time that a run takes, loading included: 90s, 10m, 1h. A resumed run has the
    remaining time."""
    templates: list[str] | None = option("--template FILE")
    """A further template to try, beside verbatim, standard, generic and the model's own; may be
    repeated."""
    test: Path | None = option("FILE")
    """Documents that must not be shown: labels of the same texts are left out. Default: test.jsonl
    of the folder."""
    seed: int = 0
    """Seed of the documents that are held out, and of random trials."""


@verb
def fit(args: Args) -> None:
    """Chooses a prompt for MODEL on labelled documents: template, demonstrations, their number and
    order, and decoding. 20 documents are a start. No weights are trained.

    Writes one file, which `extract`, `serve`, `evaluate`, `explain`, `calibrate` and `trace` take
    as --prompt, and says what it gains on documents that were held out. A prompt that is worse on
    them is refused. Outcomes and trials stay beside the file; the same command goes on from them,
    if --time is longer.
    """
    started = time.monotonic()
    seconds, output = _seconds(args.time), args.output
    if output.is_dir() or not output.parent.is_dir():
        raise UsageError(f"-o names a file in an existing folder, not {output}")
    refuse_inputs(str(output), map(str, filter(None, (args.data, args.test, args.schemas))))
    decoding = args.settings()["decoding"]
    templates = {Path(file).name: template_source(file) for file in args.templates or ()}
    for text in templates.values():
        load_template(text)
    args.check()
    labelled = args.dataset(args.data, "train")
    # Imported here because they import torch, which takes seconds.
    from schemax.training.fitting import fit as fitted
    from schemax.training.fitting.measuring import sidecar
    from schemax.training.training_examples import read_training_examples

    with plain_warnings(), terminable():
        read = read_training_examples(labelled.file, args.test or labelled.test)[: args.limit]
        extractor = copy(args.extractor())
        decoding = decoding or extractor.defaults.decoding
        extractor.defaults = replace(extractor.defaults, decoding=decoding)
        schemas, examples = labelled.prepared(read, [extractor])
        note_seen(extractor, args.model, examples)
        result = fitted(
            extractor,
            examples,
            labelled.as_shown(schemas, examples, extractor, args.schema_examples),
            seconds=seconds,
            started=started,
            templates=templates,
            format=args.format,
            sidecar=sidecar(output),
            seed=args.seed,
            tell=say,
        )
    write_prompt_file(result.prompt, output)
    show(*result.lines())
    if result.changes_nothing:
        say(f"{output}: nothing was better than the current prompt, so it changes nothing")
        return
    say(f"{output}: {result.chosen}")
    say(f"next: schemax extract {next_words(args)} --prompt {shlex.quote(str(output))}")


def next_words(args: Args) -> str:
    """Returns schema, input and model of a command that uses the prompt."""
    spec = args.schemas
    schema = "SCHEMA" if spec is None or spec.endswith(".json") else shlex.quote(spec)
    names = "model", "server", "tokenizer", "adapter", "revision", "quantization", "dtype"
    named = {name: getattr(args, name) for name in names}
    return " ".join(
        [
            f"{schema} INPUT",
            *(
                f"--{name} {shlex.quote(value)}"
                for name, value in named.items()
                if value not in (None, "auto")
            ),
        ]
    )


def _seconds(text: str) -> float:
    """Reads "90s", "10m", "1.5h" and "600". Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not seconds:
        raise UsageError(f"--time must be a time such as 90s, 10m or 1h, not {text!r}")
    return seconds
