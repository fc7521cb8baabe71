"""Logits become the next token of every slot, within the slot's grammar."""
