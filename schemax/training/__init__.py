"""Training with the decoder's own positions and mask (paper, section 4.4)."""
