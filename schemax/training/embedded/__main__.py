"""Trains the embedded model from scratch.

    python -m schemax.training.embedded TRAIN.jsonl OUT --minutes 80

TRAIN.jsonl holds one object a line, `{"id", "category", "text", "attributes": {name: value}}`;
a part of it is held out to watch progress. Texts of --exclude are never trained on.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import torch

from schemax.resources import resource_dir
from schemax.training.embedded.mixture import Variety
from schemax.training.embedded.train import Recipe, read_data, train

_OPTIONS = (
    "learning_rate",
    "dropout",
    "held_out",
    "titles_times",
    "num_layers",
    "decoding",
    "seed",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--exclude", type=Path, help="JSONL whose texts are never trained on")
    parser.add_argument("--start", type=Path, help="folder of an earlier run to go on from")
    parser.add_argument("--minutes", type=float, default=80)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--template", type=Path)
    parser.add_argument(
        "--bf16",
        action="store_true",
        help="faster on processors with bfloat16 instructions, many times slower elsewhere",
    )
    usual, variety = Recipe(), Variety()
    for name in _OPTIONS:
        add_option(parser, name, getattr(usual, name))
    for field in fields(Variety):
        add_option(parser, field.name, getattr(variety, field.name))
    given = vars(parser.parse_args())
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    recipe = Recipe(
        **{field.name: given[field.name] for field in fields(Recipe) if field.name in given},
        variety=Variety(**{field.name: given[field.name] for field in fields(Variety)}),
    )
    data = read_data(given["data"], given["exclude"], recipe)
    template = given["template"] or resource_dir("embedded") / "prompt.jinja"
    train(data, given["out"], recipe, given["minutes"], template, given["start"])


def add_option(parser: argparse.ArgumentParser, name: str, default: float | str) -> None:
    parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)


if __name__ == "__main__":
    main()
