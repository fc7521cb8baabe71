"""`schemax data`: published data sets as annotated products."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path

from schemax.commands.console import show
from schemax.commands.option_groups import Options, argument, option, verb
from schemax.evaluation.published.write import EXTRACTGPT, DatasetName, write_dataset
from schemax.messages import say


class Given(Options):
    """Options"""

    name: DatasetName = argument("DATASET")
    """oa-mine or ae-110k."""
    out: Path = option("-o FOLDER", default=MISSING, show_default=False)
    """A new folder for train.jsonl, test.jsonl, attributes.json and dataset.json."""
    source: str = option("FOLDER_OR_URL", default=EXTRACTGPT)
    """A folder, a .zip file or an address with the published files: ExtractGPT's, which have the
    splits of the HPD paper, or those of the data set's own authors."""
    seed: int = 0
    """Seed of the split, where the source has none."""


@verb
def data(given: Given) -> None:
    """Makes annotated products of a published data set, for `train` and `evaluate`.

    dataset.json has checksums of what was read and written, how it was split, and the licence.
    """
    about = write_dataset(given.name, given.source, given.out, given.seed)
    sizes = ", ".join(f"{split} {count:,}" for split, count in about["splits"].items())
    show(f"{given.out}: {sizes}; {about['attributes_per_product']:.2f} attributes per document")
    show(f"split by {about['split_by']}", f"licence: {about['licence']}")
    say(f"next: schemax evaluate {given.out}")
