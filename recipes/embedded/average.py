"""The mean of two models that were trained one from the other.

    python -m recipes.embedded.average FIRST SECOND OUT

Both lie in one valley of the loss, and between them it is often lower than at either (Izmailov et
al., Averaging Weights Leads to Wider Optima and Better Generalization, 2018).
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

_WEIGHTS = "model.safetensors"


def average(first: Path, second: Path, out: Path) -> None:
    """Writes a copy of `first` with mean weights; dtypes stay.

    Raises ValueError if tokenizers or shapes differ.
    """
    one, other = load_file(first / _WEIGHTS), load_file(second / _WEIGHTS)
    shapes = [{name: t.shape for name, t in weights.items()} for weights in (one, other)]
    texts = [(folder / "tokenizer.json").read_text("utf-8") for folder in (first, second)]
    if shapes[0] != shapes[1] or texts[0] != texts[1]:
        raise ValueError(f"{first} and {second} have other tokens or layers, and no mean")
    shutil.copytree(first, out, dirs_exist_ok=True)
    means = {name: ((t.float() + other[name].float()) / 2).to(t.dtype) for name, t in one.items()}
    save_file(means, out / _WEIGHTS, metadata={"format": "pt"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("first", "second", "out"):
        parser.add_argument(name, type=Path)
    average(**vars(parser.parse_args()))
