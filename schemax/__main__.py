"""`python -m schemax`."""

from schemax.commands.cli import main

main()
