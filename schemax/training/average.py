"""Averages the weights of two runs that began alike.

    python -m schemax.training.average A B OUT --share 0.7

OUT is B with weights of 0.3 * A + 0.7 * B.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def average(first: Path, second: Path, out: Path, share: float) -> None:
    """Writes `second` into `out`, its weights moved towards `first`; share: of the second."""
    shutil.copytree(second, out, dirs_exist_ok=True)
    a, b = (load_file(folder / "model.safetensors") for folder in (first, second))
    mixed = {
        name: torch.lerp(a[name].float(), b[name].float(), share).to(b[name].dtype) for name in b
    }
    save_file(mixed, out / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("first", "second", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--share", type=float, default=0.5)
    options = parser.parse_args()
    average(options.first, options.second, options.out, options.share)


if __name__ == "__main__":
    main()
