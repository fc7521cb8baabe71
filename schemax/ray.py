"""`schemax.io.ray` under the short name by which programs of Ray import it."""

from schemax.io.ray import extract

__all__ = ["extract"]
