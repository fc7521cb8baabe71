"""Training for a fixed processor time: clock, learning rate, progress, checkpoints, resuming."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Sized
from pathlib import Path
from typing import Any, Protocol

import torch

STATE = "state.pt"
# Steps until the learning rate is at its peak.
_WARM_UP = 30


class Timed(Protocol):
    """Hyperparameters of a run; see `recipes.embedded.train.Recipe`."""

    @property
    def minutes(self) -> float: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def cooldown(self) -> float: ...
    @property
    def check_minutes(self) -> float: ...


class TimedRun:
    """The progress of a run. step, tokens: so far, including earlier starts."""

    def __init__(self, recipe: Timed) -> None:
        self._timed = recipe
        self._losses: list[float] = []
        self._earlier = 0.0
        self.step, self.tokens = 0, 0
        self._start_clock()

    def _start_clock(self) -> None:
        self._started, self._since = time.process_time(), self.tokens

    @property
    def minutes(self) -> float:
        """The processor time so far, including earlier starts."""
        return self._earlier + (time.process_time() - self._started) / 60

    def recent_loss(self) -> float:
        """Returns the mean loss of the last 50 steps of this start."""
        return sum(self._losses[-50:]) / max(1, len(self._losses[-50:]))

    def rate_now(self) -> float:
        """Returns the learning rate of the next step."""
        recipe = self._timed
        rate = recipe.learning_rate * schedule(self.minutes / recipe.minutes, recipe.cooldown)
        return rate * min(1, (self.step + 1) / _WARM_UP)

    def count(self, sequences: Sequence[Sized], loss: float) -> None:
        """Counts a step that was taken."""
        self.step += 1
        self.tokens += sum(map(len, sequences))
        self._losses.append(loss)

    def train(self, take_step: Callable[[], None], check: Callable[[], None], every: int) -> None:
        """Takes steps until the time is over, checks at intervals and at the end.

        Time before does not count as training. every: steps between two lines of output.
        """
        self._start_clock()
        last = self.minutes
        while self.minutes < self._timed.minutes:
            take_step()
            if self.step % every == 0:
                seconds = time.process_time() - self._started
                print(
                    f"{self.minutes:6.1f} min  step {self.step}  "
                    f"loss {self.recent_loss():.4f}  {self.tokens / 1e6:.3f} M tokens, "
                    f"{(self.tokens - self._since) / seconds:.0f} a second",
                    flush=True,
                )
            if self.minutes - last >= self._timed.check_minutes:
                last = self.minutes
                check()
        check()

    def save_state(self, path: Path, **state: Any) -> None:
        """Saves the progress and what else resuming requires; replaces the file atomically."""
        own = {"step": self.step, "tokens": self.tokens, "minutes": self.minutes}
        part = path.with_suffix(".part")
        torch.save({**state, **own}, part)
        part.replace(path)

    def load_state(self, path: Path) -> dict[str, Any]:
        """Takes the progress of a saved run up; returns all that was saved."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self.step, self.tokens, self._earlier = state["step"], state["tokens"], state["minutes"]
        self._start_clock()
        return state


def schedule(done: float, cooldown: float) -> float:
    """Returns the rate's factor: 1, then over the last share of the time linearly down to 0.02."""
    left = max(0.0, 1 - done) / cooldown
    return 0.02 + 0.98 * min(1.0, left)


def show_losses(minutes: float, losses: dict[str, float]) -> None:
    """Prints the losses of a checkpoint."""
    shown = "  ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
    print(f"  checked at {minutes:.1f} min: {shown}", flush=True)
