"""The curves of a run: logged and held-out metrics by step, and a plot of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schemax.evaluation.plots import drawing

# Names in the Trainer's log -> names in a card.
_NAMES = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "tokens_per_second": "tokens_per_second",
    "eval_loss": "held_out_loss",
    "eval_f1": "held_out_f1",
}
_PICTURES = {
    "loss": ("loss", "held_out_loss"),
    "F1": ("held_out_f1",),
    "learning rate": ("learning_rate",),
    "tokens per second": ("tokens_per_second",),
}

History = tuple[Mapping[str, float], ...]


def history_of(log: Sequence[Mapping[str, Any]]) -> History:
    """Returns a row, with its step, per entry of the Trainer's log that holds a loss."""
    rows = []
    for entry in log:
        known = {name: entry[key] for key, name in _NAMES.items() if key in entry}
        if "loss" in known or "held_out_loss" in known:
            rows.append({"step": entry["step"], **known})
    return tuple(rows)


def plot_training(history: History, path: Path) -> None:
    """Plots all curves over steps; the suffix of `path` gives the format."""
    shown = {
        title: names
        for title, names in _PICTURES.items()
        if any(name in row for row in history for name in names)
    }
    with drawing(path, (4.5 * len(shown), 3.5)) as figure:
        for axes, (title, names) in zip(
            figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
        ):
            for name in names:
                points = [(row["step"], row[name]) for row in history if name in row]
                dots = "o" if name.startswith("held_out") or len(points) == 1 else ""
                axes.plot(*zip(*points, strict=True), marker=dots, label=name.replace("_", " "))
            axes.set(title=title, xlabel="step")
            axes.set_ylim(bottom=0)
            axes.spines[["top", "right"]].set_visible(False)
            if len(names) > 1:
                axes.legend(frameon=False)
