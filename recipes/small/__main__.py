"""Trains the adapter `small` for SmolLM2-135M-Instruct.

    python -m recipes.small TITLES.jsonl BASE OUT --sources FOLDER --exclude TEST.jsonl

BASE is the model's folder, for one that `python -m recipes.smollm2` wrote. OUT/adapter is then an
adapter in peft's format, calibrated on documents that were set aside. The same command goes on with
a run that was stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import torch

from recipes.embedded.data import Data, lines_set_aside, read_data
from recipes.small.train import ADAPTER, Recipe, train
from schemax.base.calibration import FILE as CALIBRATION


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("titles", "base", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--sources", type=Path, help="folder of annotated rows of public data sets")
    parser.add_argument("--exclude", type=Path, help="JSONL whose texts are never trained on")
    parser.add_argument("--start", type=Path, help="model folder that adapters first come near to")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--held-out", type=int, default=40)
    parser.add_argument("--calibrate-on", type=int, default=330, metavar="DOCUMENTS")
    parser.add_argument("--titles-times", type=int, default=3)
    plain = [option for option in fields(Recipe) if option.name not in ("asking", "variety")]
    for option in plain:
        default = getattr(Recipe(), option.name)
        parser.add_argument(
            f"--{option.name.replace('_', '-')}", type=type(default), default=default
        )
    given = vars(parser.parse_args())
    torch.set_num_threads(given["threads"])
    data = read_data(
        given["titles"],
        given["exclude"],
        given["sources"],
        held_out=given["held_out"],
        titles_times=given["titles_times"],
        seed=0,
    )
    recipe = Recipe(**{option.name: given[option.name] for option in plain})
    train(data, given["base"], given["out"], recipe, given["start"])
    calibrate(data, given["out"], given["calibrate_on"])


def calibrate(data: Data, out: Path, count: int) -> None:
    """Runs `schemax calibrate` to write OUT/adapter/calibration.json, unless the file exists.

    count: the number of documents to read, evenly spread over the held-out ones; 0: no calibration.
    """
    if not count or (out / ADAPTER / CALIBRATION).is_file():
        return
    lines = list(lines_set_aside(data))
    count = min(count, len(lines))
    few = [lines[place * len(lines) // count] for place in range(count)]
    held_out = out / "set_aside.jsonl"
    held_out.write_text("".join(f"{line}\n" for line in few), "utf-8")
    command = ["-m", "schemax", "calibrate", str(held_out), "--model", str(out / ADAPTER)]
    subprocess.run([sys.executable, *command, "--format", "json,yaml,xml"], check=True)


if __name__ == "__main__":
    main()
