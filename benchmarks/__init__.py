"""Benchmarks of rivals, devices and parts of schemax, for a checkout: `python -m benchmarks`."""
