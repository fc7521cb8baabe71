"""Compares speed with other engines on the same work: in one process, on one model."""
