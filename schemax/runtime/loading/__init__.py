"""Models from folders and from the Hub: safetensors only, never remote code."""

from schemax.runtime.loading.load import Loaded, all_eos_ids, load, pick_device

__all__ = ["Loaded", "all_eos_ids", "load", "pick_device"]
