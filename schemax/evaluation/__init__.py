"""How good an extraction is."""
