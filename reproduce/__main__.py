"""python -m reproduce TARGET: the commands of a table or figure, one after another.

A step whose file is there is not run again. docs/reproduce.md tells of the targets.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reproduce.scales import SCALES, with_model
from reproduce.tables import TABLES
from reproduce.targets import TARGETS, Step


def command_of(step: Step) -> list[str]:
    """Returns the command that runs a step."""
    if step.arguments[0].startswith(("reproduce.", "benchmarks")):
        return [sys.executable, "-m", *step.arguments]
    return [*(step.launch or (sys.executable, "-m")), "schemax", *step.arguments]


def resumed(step: Step) -> Step:
    """Returns the step, with --resume if it is an interrupted training with a checkpoint.

    Without a checkpoint, removes the folder, so that the training begins anew.
    """
    folder = step.makes.parent
    if step.arguments[0] != "train" or not folder.is_dir():
        return step
    if any(folder.glob("checkpoints/checkpoint-*/trainer_state.json")):
        return replace(step, arguments=(*step.arguments, "--resume"))
    shutil.rmtree(folder)
    return step


def run(step: Step) -> None:
    """Runs a step. Raises CalledProcessError if the command fails, and discards its output."""
    step = resumed(step)
    step.makes.parent.mkdir(parents=True, exist_ok=True)
    if not step.to_file:
        subprocess.run(command_of(step), check=True)
        return
    partial = step.makes.with_suffix(".partial")
    with partial.open("wb") as handle:
        subprocess.run(command_of(step), check=True, stdout=handle)
    partial.replace(step.makes)


def processor_seconds() -> float:
    """Returns the processor seconds of all ended commands."""
    ended = os.times()
    return ended.children_user + ended.children_system


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m reproduce", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--scale", choices=SCALES, default="laptop")
    parser.add_argument("--out", type=Path, default=Path("reproduced"))
    parser.add_argument("--source", help="of the published data, as of `reproduce.dataset`")
    parser.add_argument(
        "--model", help="a pretrained one, folder or Hub id; its files go to OUT/NAME"
    )
    parser.add_argument("--judge", metavar="MODEL or URL#MODEL", help="of table 4")
    parser.add_argument("--dry-run", action="store_true", help="show the commands alone")
    given = parser.parse_args(arguments)
    scale = SCALES[given.scale]
    scale = replace(scale, judge=given.judge or scale.judge)
    out = given.out
    if given.model is not None:
        scale = with_model(scale, given.model)
        out /= next(iter(scale.models))
    steps = list(TARGETS[given.target](scale, out, given.source))
    for step in steps:
        print(
            "+", shlex.join(command_of(step)), f"> {step.makes}" if step.to_file else "", flush=True
        )
        if step.makes.exists() or given.dry_run:
            continue
        began, used = time.perf_counter(), processor_seconds()
        try:
            run(step)
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)
        took, used = time.perf_counter() - began, processor_seconds() - used
        print(f"  {took:.0f} s, {used:.0f} of a processor core", flush=True)
    if given.target in TABLES and not given.dry_run:
        print(TABLES[given.target](out / given.target))


if __name__ == "__main__":
    main()
