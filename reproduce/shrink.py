"""A smaller model: the first layer of another and its last ones, to be fine-tuned.

python -m reproduce.shrink MODEL OUT --layers 2      # or --share 0.5 of them
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

_BESIDE = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "prompt.jinja")


def shrink(model: Path, out: Path, layers: int | None = None, share: float = 1.0) -> None:
    """Writes a model with fewer layers, with the tokenizer and the prompt of the model.

    layers: the number of layers kept; None: a share.

    The layers behind the first are left out: the last layers decide what is copied. 4 layers of the
    embedded model have four fifths of its F1 this way, but a quarter if they are the first 4.
    """
    made = AutoModelForCausalLM.from_pretrained(model)
    count = len(made.model.layers)
    layers = max(1, round(share * count)) if layers is None else layers
    kept = [0, *range(count - layers + 1, count)]
    made.model.layers = torch.nn.ModuleList(made.model.layers[place] for place in kept)
    made.config.num_hidden_layers = layers
    if getattr(made.config, "layer_types", None):
        made.config.layer_types = [made.config.layer_types[place] for place in kept]
    made.save_pretrained(out)
    for name in _BESIDE:
        if (model / name).is_file():
            shutil.copy(model / name, out)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("out", type=Path)
    wanted = options.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--layers", type=int)
    wanted.add_argument("--share", type=float, default=1.0)
    return options


def main() -> None:
    given = parser().parse_args()
    shrink(given.model, given.out, given.layers, given.share)


if __name__ == "__main__":
    main()
