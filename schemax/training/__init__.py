"""Training, with the positions and the mask of decoding (paper, section 4.4)."""
