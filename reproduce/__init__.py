"""Reproduces tables and figures of the HPD paper; README.md says how."""
