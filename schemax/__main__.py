"""`python -m schemax`."""

from schemax.cli import main

main()
