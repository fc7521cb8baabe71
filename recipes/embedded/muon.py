"""Muon (Jordan et al., 2024) in float32.

torch's Muon computes matrix products in bfloat16, which on processors without bfloat16 instructions
take many times as long as the rest of a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

# The quintic that brings singular values near 1, and the number of its iterations.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5
_MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """Orthogonalized Nesterov momentum; updates are as large as AdamW's (Liu et al., 2025)."""

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in by_shape.items():
                updates = orthogonal(torch.stack([self._momentum(m) for m in matrices]))
                rate = group["lr"] * 0.2 * max(shape) ** 0.5
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(update, alpha=-rate)

    def _momentum(self, matrix: nn.Parameter) -> torch.Tensor:
        gradient = matrix.grad
        assert gradient is not None
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        momentum: torch.Tensor = state["momentum_buffer"]
        momentum.lerp_(gradient, 1 - _MOMENTUM)
        return gradient.lerp(momentum, _MOMENTUM)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Orthogonalizes (N, rows, columns) matrices: singular values near 1 (Newton-Schulz)."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    found = matrices.mT if tall else matrices
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = found @ found.mT
        found = torch.baddbmm(
            found, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), found, beta=a
        )
    return found.mT if tall else found
