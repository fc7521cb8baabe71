"""Attention of a pass: visibility, masks, segments, kernels, the pool of keys and values."""
