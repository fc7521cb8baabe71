"""A smaller model: the first layers of another, to be fine-tuned.

python -m reproduce.shrink MODEL OUT --layers 2
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from transformers import AutoModelForCausalLM

_BESIDE = ("tokenizer.json", "tokenizer_config.json", "prompt.jinja")


def shrink(model: Path, out: Path, layers: int) -> None:
    """Writes a folder as transformers does, with the tokenizer and the prompt of the model."""
    made = AutoModelForCausalLM.from_pretrained(model)
    made.model.layers = made.model.layers[:layers]
    made.config.num_hidden_layers = len(made.model.layers)
    if getattr(made.config, "layer_types", None):
        made.config.layer_types = made.config.layer_types[:layers]
    made.save_pretrained(out)
    for name in _BESIDE:
        if (model / name).is_file():
            shutil.copy(model / name, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, required=True)
    given = parser.parse_args()
    shrink(given.model, given.out, given.layers)


if __name__ == "__main__":
    main()
