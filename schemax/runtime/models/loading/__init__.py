"""Loads models from folders, GGUF files and the Hub; never pickles, never remote code."""

from schemax.runtime.models.loading.load import (
    Loaded,
    load,
    load_tokenizer,
    named_eos_ids,
    pick_device,
)

__all__ = ["Loaded", "load", "load_tokenizer", "named_eos_ids", "pick_device"]
