"""What a run leaves beside its weights: on which data, with which settings, with what outcome."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from schemax.errors import InputError

CARD = "training.json"
_RUN = "run.json"

# Settings that may differ in a run that is taken up again.
_MAY_CHANGE = {"epochs", "steps", "keep_adapter"}


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def versions() -> dict[str, str]:
    """Of what the outcome depends on."""
    found = {"python": platform.python_version()}
    for name in ("schemax-hpd", "torch", "transformers", "accelerate", "peft"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", "utf-8")


def begin_run(folder: Path, described: Mapping[str, Any], *, resume: bool) -> None:
    """Notes in a folder of checkpoints what run it belongs to, or checks that it is the same one.

    Raises InputError, naming them, for settings whose change would give a resumed run other
    batches or other weights to go on from.
    """
    path = folder / _RUN
    plain = json.loads(json.dumps(described))
    if not resume:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(plain, indent=2) + "\n", "utf-8")
        return
    if not path.is_file():
        raise InputError(f"there is no run in {folder.parent} to resume")
    before = json.loads(path.read_text("utf-8"))
    changed = [key for key in {**before, **plain} if before.get(key) != plain.get(key)]
    if odd := [key for key in changed if key not in _MAY_CHANGE]:
        raise InputError(
            f"the run in {folder.parent} had different settings ({', '.join(sorted(odd))}); "
            "resume it with the same settings, or train into another folder"
        )
