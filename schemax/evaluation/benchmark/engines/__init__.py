"""Engines by family, one per file; `base` is common to all, `registry` has their names."""
