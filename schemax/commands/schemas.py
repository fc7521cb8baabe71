"""`schemax schemas`: what is ready-made."""

from __future__ import annotations

import textwrap

import typer

from schemax.attributes import compile_attributes
from schemax.catalog import load_schema, schema_names


def schemas() -> None:
    """Lists the ready-made schemas with their attributes."""
    for name in schema_names():
        attributes = ", ".join(item.name for item in compile_attributes(load_schema(name)))
        typer.echo(name)
        typer.echo(textwrap.fill(attributes, 80, initial_indent="    ", subsequent_indent="    "))
