"""The options of `schemax extract`, in the groups that its help shows."""

from __future__ import annotations

from dataclasses import dataclass

from schemax.commands import options
from schemax.commands.option_groups import option
from schemax.io.job import IfComplete
from schemax.io.long_documents import TooLong
from schemax.io.writers import Formulas
from schemax.reading.markup import Html

INPUT_HELP = (
    "Files, folders, addresses (s3://...) and patterns ('*.parquet'): JSON Lines (also .gz, .zst), "
    ".csv, .xlsx, .parquet, .arrow, .feather; documents, each of which is one record: .pdf, .docx, "
    ".html, .txt, .md. - reads JSON Lines from stdin."
)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Input and output"""

    output: str | None = option(
        "Where rows go: a file of one of these kinds, which is replaced once all are done. "
        "Default: stdout, JSON Lines.",
        *("--output", "-o"),
        metavar="OUT",
    )
    report: str | None = option(
        "Also write a page to look through the results: HTML, all in that one file.",
        metavar="FILE",
    )
    details: str | None = option(
        "Add every field's raw text, confidence and place in the text; of `--details confidence`, "
        "its confidence alone, and the least of a row.",
        metavar="[confidence]",
    )
    keep: str | None = option("Keys of a record that stand in its row as well.", metavar="KEY,KEY")
    id: str = option("Key of a record's id.", default="id", metavar="KEY")
    text: str | None = option(
        "Keys that the model is shown. Default: all but id and category.", metavar="KEY,KEY"
    )
    category: str | None = option(
        "Key of a record's category, for SCHEMA of several: Shoes=shoes,Tea=tea. Default with "
        "auto: category.",
        metavar="KEY",
    )
    html: Html = option(
        "HTML in texts: recognised and left out, or shown to the model as it is.", default="strip"
    )
    limit: int | None = option("Read the first so many records only.", min=0)
    shard: str | None = option(
        "Read every N-th record only, from the I-th on: 0/4, 1/4, 2/4 and 3/4 are all. Sorting by "
        "index puts their rows in order.",
        metavar="I/N",
    )
    partition_by: str | None = option(
        "OUT is a folder of Parquet with a folder in it for each value of these columns: fields of "
        "SCHEMA, or keys of a record. Of a new Delta table, its partitions.",
        metavar="KEY,KEY",
    )
    rows_per_file: int | None = option(
        "Rows of a file of such a folder, at most. Default: 1,000,000.", min=1, metavar="N"
    )
    csv_formulas: Formulas = option(
        "Texts of CSV that a spreadsheet would take for formulas (=1+1): as they are, or with an "
        "apostrophe in front.",
        default="keep",
    )


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Model and prompt"""

    model: options.Model = None
    device: options.Device = "auto"
    dtype: options.Dtype = "auto"
    compile: bool = option(
        "Make one kernel of each chain of pointwise operations, as the model is loaded.",
        default=False,
    )
    format: options.Format = None
    template: options.Template = None
    prompt: options.Prompt = None
    examples: options.Examples = None
    decoding: options.Decoding = None
    batch_size: int | None = option("Documents in flight. Default: what fits.", min=1)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The run"""

    on_too_long: TooLong = option(
        "What becomes of documents that the model's context does not hold: a failed row; their "
        "beginning is read; or all of it, in overlapping chunks.",
        default="error",
    )
    max_errors: str = option(
        "Failed rows (a number or a percentage) that still give exit status 0.",
        default="0",
        metavar="N or P%",
    )
    retry_failed: str | None = option(
        "Do the failed rows of a finished table again, and nothing else: with the SCHEMA, INPUT "
        "and options that it was made with, but for those that are named now.",
        metavar="OUT",
    )
    if_complete: IfComplete = option(
        "Of an OUT that is complete: leave it where the same records, schema, model and settings "
        "have made it; stop with exit status 2; or compute all rows again.",
        default="replace",
    )
    reuse: str | None = option(
        "Take the rows that are unchanged (text, schema, model and settings) out of an earlier "
        "table, which may be OUT itself.",
        metavar="TABLE",
    )
    overwrite: bool = option(
        "Start anew where an unfinished run has left rows (_OUT.parts).", default=False
    )
    quiet: bool = option("No progress, no notes, no summary.", "-q", default=False)


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Scale-out on Ray"""

    ray: bool = option(
        "Compute on Ray: the cluster that $RAY_ADDRESS names, one that was started on this "
        "machine, else this machine. Same rows, same parts.",
        default=False,
    )
    actors: str | None = option(
        "Models on Ray. Default: one for each GPU, else for each machine.", metavar="N or MIN,MAX"
    )
    gpus_per_actor: float | None = option("Default: 1 if Ray has GPUs, else 0.")
    cpus_per_actor: float | None = option(
        "Also the threads of an actor. Default: 1 beside a GPU, else its share."
    )


@dataclass(frozen=True, slots=True)
class DryRunOptions:
    """Dry run"""

    dry_run: bool = option("Only read a sample, and say what the run would take.", default=False)
    price_per_hour: float | None = option("Price of the machine, for the cost of the run.", min=0)
