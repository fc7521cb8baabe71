"""How what comes with schemax was made. Run from a checkout; no part of the wheel."""
