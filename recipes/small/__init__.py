"""How the adapter `small` was made."""
