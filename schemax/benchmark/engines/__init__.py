"""Engines by family, one a file; what all share is in `base`, their names are in `registry`."""
