"""Measures the quality of extractions: scores, calibration, judges."""
