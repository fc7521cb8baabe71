"""Trains the embedded model.

    python -m recipes.embedded TITLES.jsonl OUT --sources FOLDER --exclude TEST.jsonl

TITLES.jsonl holds one object a line, `{"id", "category", "text", "attributes": {name: value}}`; a
part of it is held out to watch progress. The same command goes on with a run that was stopped.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path

import torch

from recipes.embedded.data import read_data
from recipes.embedded.mixture import Variety
from recipes.embedded.network import Shape
from recipes.embedded.train import Recipe, train


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("titles", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sources", type=Path, help="folder of annotated rows of public data sets")
    parser.add_argument("--exclude", type=Path, help="JSONL whose texts are never trained on")
    parser.add_argument("--start", type=Path, help="model folder whose weights are taken up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--held-out", type=int, default=40)
    parser.add_argument("--titles-times", type=int, default=3)
    parser.add_argument("--pid-file", type=Path, help="file that the process id is written to")
    parser.add_argument(
        "--bf16",
        action="store_true",
        help="faster on processors with bfloat16 instructions, many times slower elsewhere",
    )
    plain = [f for f in fields(Recipe) if f.name not in ("shape", "variety", "bf16")]
    for cls in (Recipe, Shape, Variety):
        for option in plain if cls is Recipe else fields(cls):
            if option.name != "habits":
                name, default = option.name, getattr(cls(), option.name)
                parser.add_argument(
                    f"--{name.replace('_', '-')}", type=type(default), default=default
                )
    given = vars(parser.parse_args())
    torch.set_num_threads(given["threads"])
    if given["pid_file"]:
        given["pid_file"].write_text(f"{os.getpid()}\n")
    recipe = Recipe(
        **{f.name: given[f.name] for f in plain},
        bf16=given["bf16"],
        shape=Shape(**{f.name: given[f.name] for f in fields(Shape)}),
        variety=Variety(**{f.name: given[f.name] for f in fields(Variety) if f.name != "habits"}),
    )
    data = read_data(
        given["titles"],
        given["exclude"],
        given["sources"],
        held_out=given["held_out"],
        titles_times=given["titles_times"],
        # Runs with other seeds hold out the same titles, on which their mean can be evaluated.
        seed=0,
    )
    train(data, given["out"], recipe, given["start"])


if __name__ == "__main__":
    main()
