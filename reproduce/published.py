"""Published numbers of the paper (arXiv 2604.26209), for comparison with measured ones."""

from __future__ import annotations

from collections.abc import Mapping

TABLE_1: Mapping[tuple[str, str, str], tuple[float, float]] = {
    ("oa-mine", "Qwen3-32B", "autoregressive"): (0.888, 0.688),
    ("oa-mine", "Qwen3-32B", "paper"): (0.878, 0.267),
    ("oa-mine", "phi-4", "autoregressive"): (0.880, 0.355),
    ("oa-mine", "phi-4", "paper"): (0.888, 0.095),
    ("oa-mine", "Qwen3-8B", "autoregressive"): (0.891, 0.166),
    ("oa-mine", "Qwen3-8B", "paper"): (0.878, 0.069),
    ("oa-mine", "Qwen3-4B", "autoregressive"): (0.878, 0.147),
    ("oa-mine", "Qwen3-4B", "paper"): (0.876, 0.061),
    ("oa-mine", "Qwen3-1.7B", "autoregressive"): (0.863, 0.080),
    ("oa-mine", "Qwen3-1.7B", "paper"): (0.849, 0.034),
    ("ae-110k", "Qwen3-32B", "autoregressive"): (0.794, 0.727),
    ("ae-110k", "Qwen3-32B", "paper"): (0.854, 0.270),
    ("ae-110k", "phi-4", "autoregressive"): (0.797, 0.350),
    ("ae-110k", "phi-4", "paper"): (0.782, 0.109),
    ("ae-110k", "Qwen3-8B", "autoregressive"): (0.787, 0.163),
    ("ae-110k", "Qwen3-8B", "paper"): (0.853, 0.070),
    ("ae-110k", "Qwen3-4B", "autoregressive"): (0.795, 0.156),
    ("ae-110k", "Qwen3-4B", "paper"): (0.839, 0.063),
    ("ae-110k", "Qwen3-1.7B", "autoregressive"): (0.780, 0.076),
    ("ae-110k", "Qwen3-1.7B", "paper"): (0.814, 0.035),
}
"""Fine-tuned models of table 1: data set, model, decoding -> F1, dollars per 1,000 products."""

TABLE_3: Mapping[str, float] = {
    "paper-1": 10.78,
    "draft 1.7B": 2.08,
    "draft 4B": 1.84,
    "draft 8B": 1.26,
    "generate": 1.00,
}
"""Speed-up of Qwen3-32B over autoregressive decoding: batch 1, no stacking."""

TABLE_4: Mapping[tuple[str, str], tuple[float, float]] = {
    ("Qwen3-32B", "autoregressive"): (0.884, 0.14),
    ("Qwen3-32B", "paper"): (0.884, 1.17),
    ("phi-4", "autoregressive"): (0.876, 0.31),
    ("phi-4", "paper"): (0.883, 4.23),
    ("Qwen3-8B", "autoregressive"): (0.874, 0.77),
    ("Qwen3-8B", "paper"): (0.881, 6.28),
    ("Qwen3-4B", "autoregressive"): (0.861, 0.87),
    ("Qwen3-4B", "paper"): (0.870, 7.89),
    ("Qwen3-1.7B", "autoregressive"): (0.861, 0.94),
    ("Qwen3-1.7B", "paper"): (0.870, 10.99),
}
"""Fine-tuned models on Amazon Reviews: model, decoding -> LLM-F1, products/s of one GPU."""

FIGURE_4 = 7.55
"""The largest speed-up of Qwen3-8B over autoregressive decoding in figure 4."""
