"""Fitting: chooses a prompt for a model on labelled documents; no weights are trained."""

from schemax.training.fitting.run import FitResult, fit

__all__ = ["FitResult", "fit"]
