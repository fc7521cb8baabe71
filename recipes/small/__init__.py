"""The recipe of the adapter `small`."""
