"""Checkpoints without pickles: weights, optimizer and random states in safetensors and JSON.

DeepSpeed and FSDP write the state of their optimizers in formats of their own.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Trainer

_OPTIMIZER = "optimizer.safetensors"
_STATES = "optimizer.json"


class SafeTrainer(Trainer):
    """A trainer whose checkpoints hold nothing that could run code when it is read."""

    @property
    def _sharded(self) -> bool:
        return bool(self.is_deepspeed_enabled or self.is_fsdp_enabled)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        # A pickle that nobody reads.
        (Path(output_dir or self.args.output_dir or ".") / "training_args.bin").unlink(True)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self._sharded:
            super()._save_optimizer_and_scheduler(output_dir)
        elif self.args.should_save:
            save_states(self.optimizer, self.lr_scheduler, Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self._sharded or checkpoint is None:
            super()._load_optimizer_and_scheduler(checkpoint)
        else:
            load_states(self.optimizer, self.lr_scheduler, Path(checkpoint))

    def _save_rng_state(self, output_dir: str) -> None:
        save_random(self._random_file(output_dir))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None and (path := self._random_file(checkpoint)).is_file():
            load_random(path)

    def _random_file(self, folder: str) -> Path:
        return Path(folder) / f"random-{self.args.process_index}.safetensors"


def save_states(optimizer: Any, scheduler: Any, folder: Path) -> None:
    """The optimizer's tensors in safetensors, its groups and the schedule in JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for index, entry in state["state"].items():
        for name, value in entry.items():
            key = f"{index}.{name}"
            if isinstance(value, Tensor):
                tensors[key] = value.contiguous()
            else:
                plain[key] = value
    save_file(tensors, folder / _OPTIMIZER)
    others = {
        "groups": state["param_groups"],
        "plain": plain,
        "scheduler": scheduler.state_dict(),
    }
    (folder / _STATES).write_text(json.dumps(others), "utf-8")


def load_states(optimizer: Any, scheduler: Any, folder: Path) -> None:
    """What `save_states` wrote. Raises OSError where it is not there."""
    others = json.loads((folder / _STATES).read_text("utf-8"))
    values = {**load_file(folder / _OPTIMIZER), **others["plain"]}
    state: dict[int, dict[str, Any]] = {}
    for key, value in values.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    groups = others["groups"]
    for group in groups:
        group["betas"] = tuple(group["betas"])
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    scheduler.load_state_dict(others["scheduler"])


def save_random(path: Path) -> None:
    """The states of this process's random number generators."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name, keys, *rest = np.random.get_state()
    tensors = {
        "torch": torch.random.get_rng_state(),
        "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64)),
    }
    if torch.cuda.is_available():
        for device, state in enumerate(torch.cuda.get_rng_state_all()):
            tensors[f"cuda.{device}"] = state
    others = {"python": json.dumps(random.getstate()), "numpy": json.dumps([name, *rest])}
    save_file(tensors, path, metadata=others)


def load_random(path: Path) -> None:
    """What `save_random` wrote."""
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        others = file.metadata()
    version, keys, gauss = json.loads(others["python"])
    random.setstate((version, tuple(keys), gauss))
    name, *rest = json.loads(others["numpy"])
    np.random.set_state((name, tensors["numpy"].numpy().astype(np.uint32), *rest))
    torch.random.set_rng_state(tensors["torch"])
    for device in range(torch.cuda.device_count()):
        if (state := tensors.get(f"cuda.{device}")) is not None:
            torch.cuda.set_rng_state(state, device)
