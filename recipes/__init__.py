"""Recipes: make the models and figures of schemax. Run from a checkout; not in the wheel."""
