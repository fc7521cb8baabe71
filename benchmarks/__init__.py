"""Rivals, devices and parts of schemax, measured; run from a checkout: `python -m benchmarks`."""
