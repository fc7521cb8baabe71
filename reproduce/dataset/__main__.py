"""A published data set as annotated documents, for `schemax train` and `schemax evaluate`.

python -m reproduce.dataset oa-mine -o oa-mine

dataset.json has checksums of what was read and written, how it was split, and the licence.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from reproduce.dataset.formats import FORMATS
from reproduce.dataset.write import EXTRACTGPT, write_dataset
from schemax.errors import InputError


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m reproduce.dataset",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("name", choices=FORMATS, metavar="DATASET", help=" or ".join(FORMATS))
    options.add_argument(
        *("-o", "--out"),
        type=Path,
        required=True,
        metavar="FOLDER",
        help="a new folder for train.jsonl, test.jsonl, attributes.json and dataset.json",
    )
    options.add_argument(
        "--source",
        default=EXTRACTGPT,
        metavar="FOLDER_OR_URL",
        help="a folder, a .zip file or an address with the published files: ExtractGPT's, which "
        "have the splits of the paper, or those of the data set's own authors",
    )
    options.add_argument("--seed", type=int, default=0, help="of the split, if the source has none")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser()
    given = options.parse_args(arguments)
    try:
        about = write_dataset(given.name, given.source, given.out, given.seed)
    except (InputError, OSError) as error:
        options.error(str(error))
    sizes = ", ".join(f"{split} {count:,}" for split, count in about["splits"].items())
    print(f"{given.out}: {sizes}; {about['attributes_per_product']:.2f} attributes per document")
    print(f"split by {about['split_by']}\nlicence: {about['licence']}")
    print(f"next: schemax evaluate {given.out}")


if __name__ == "__main__":
    main()
