"""Schemas with lists in two phases, which several tests read."""

from __future__ import annotations

from typing import Literal

from schemax.attributes import attr
from schemax.extraction.schema import AttrSchema


class Port(AttrSchema):
    kind: Literal["HDMI", "USB"]
    version: float | None = attr("Version of the standard")


class Television(AttrSchema):
    """A set with two lists in two phases."""

    brand: str | None = None
    colors: list[str] = attr("Colours", long=True, default_factory=list)
    ports: list[Port] = attr("Connectors", default_factory=list)
