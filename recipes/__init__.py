"""How what comes with schemax was made and measured. Run from a checkout; no part of the wheel."""
