"""Checkpoints: settings, the checkpoint to resume from, optimizer states to keep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer import OPTIMIZER_NAME, TRAINER_STATE_NAME

from schemax.errors import InputError
from schemax.training.card import CARD

CHECKPOINTS = "checkpoints"
_RUN = "run.json"

# Settings that may change when a run is resumed.
_MAY_CHANGE = {"epochs", "steps", "keep_adapter"}

# Files and folders of an optimizer's state: of the Trainer, of FSDP and of DeepSpeed.
_OPTIMIZERS = (OPTIMIZER_NAME, "optimizer.bin", "optimizer_0", "global_step*")


def begin_run(folder: Path, described: Mapping[str, Any], *, resume: bool) -> None:
    """Writes a run's settings into its folder of checkpoints; compares them if the run is resumed.

    Raises InputError, naming them, for changed settings that change batches or weights.
    """
    path = folder / _RUN
    plain = json.loads(json.dumps(described))
    if not resume:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(plain, indent=2) + "\n", "utf-8")
        return
    if not path.is_file():
        done = (folder.parent / CARD).is_file()
        why = "it is finished, and its checkpoints are gone" if done else "no run began there"
        raise InputError(f"there is no run in {folder.parent} to resume: {why}")
    before = json.loads(path.read_text("utf-8"))
    changed = [key for key in {**before, **plain} if before.get(key) != plain.get(key)]
    if odd := [key for key in changed if key not in _MAY_CHANGE]:
        raise InputError(
            f"the run in {folder.parent} had different settings ({', '.join(sorted(odd))}); "
            "resume it with the same settings, or train into another folder"
        )


def last_checkpoint(folder: Path) -> str:
    """Returns the newest checkpoint with the Trainer's state, which is written last.

    Raises InputError if no checkpoint is complete.
    """
    complete = [
        path.parent
        for path in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}")
        if any(next(path.parent.glob(name), None) for name in _OPTIMIZERS)
    ]
    if not complete:
        raise InputError(
            f"there is no complete checkpoint in {folder} to resume from: the run stopped before "
            "its first check. Delete the folder and begin anew; --check-every saves sooner"
        )
    return str(max(complete, key=_step))


class OneOptimizer(TrainerCallback):
    """A callback that deletes optimizer states except in the newest checkpoint, to resume from."""

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        for path in Path(args.output_dir).glob("checkpoint-*"):
            if _step(path) < state.global_step:
                (path / OPTIMIZER_NAME).unlink(missing_ok=True)


def _step(path: Path) -> int:
    return int(path.name.rpartition("-")[2])
