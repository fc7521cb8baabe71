"""`schemax data`: published data sets as annotated products."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path

from schemax.commands.console import say, show
from schemax.commands.option_groups import argument, grouped, option
from schemax.evaluation.published.write import EXTRACTGPT, DatasetName, write_dataset


@grouped
def data(
    name: DatasetName = argument("oa-mine or ae-110k.", "DATASET"),
    out: Path = option(
        "A new folder for train.jsonl, test.jsonl, attributes.json and dataset.json.",
        *("--out", "-o"),
        default=MISSING,
        metavar="FOLDER",
        show_default=False,
    ),
    source: str = option(
        "A folder, a .zip file or an address with the published files: ExtractGPT's, which have "
        "the splits of the HPD paper, or those of the data set's own authors.",
        default=EXTRACTGPT,
        metavar="FOLDER_OR_URL",
    ),
    seed: int = option("Of the split, where the source has none.", default=0),
) -> None:
    """Makes annotated products of a published data set, for `train` and `evaluate`.

    dataset.json has checksums of what was read and written, how it was split, and the licence.
    """
    about = write_dataset(name, source, out, seed)
    sizes = ", ".join(f"{split} {count:,}" for split, count in about["splits"].items())
    show(f"{out}: {sizes}; {about['attributes_per_product']:.2f} attributes per document")
    show(f"split by {about['split_by']}", f"licence: {about['licence']}")
    say(f"next: schemax evaluate {out}")
