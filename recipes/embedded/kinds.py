"""Kinds of goods whose titles are invented, read from `kinds/*.toml`.

    names = ["Tent", "Camping tent"]            # its category in a schema
    nouns = ["Tent", "Dome Tent"]               # its noun in a title
    fillers = ["with porch"]                    # words of no facet

    [[facets]]                                  # the first two lead a title
    is = "brand"                                # one of kinds/facets.toml, with changes
    one_of = ["Coleman", "MSR"]

A facet has `names` and `descriptions` for questions, `share` (of titles that state it), `as` (types
of questions, with their shares), `choices` (tables of meaning -> choice), and one kind of value:

    one_of    one of the texts                  numbers, forms   `#` in a form is the number
    codes     A: a letter, 9: a digit           yes, no, truth   a feature, or its absence
    meaning   one of the forms of a meaning     several          some of the items
    keys      the used keys of a `meaning`      prices           an amount of money
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from recipes.embedded.invented import (
    Facet,
    Kind,
    Speaker,
    code,
    meaning,
    measure,
    one_of,
    price,
    several,
    yes_no,
)

FOLDER = Path(__file__).with_name("kinds")
_SHARED = "facets.toml"
_WHOLE = {"integer": 0.6, "number": 0.25, "text": 0.15}
_DECIMAL = {"number": 0.8, "text": 0.2}


@cache
def read_kinds() -> Mapping[str, Kind]:
    """Returns file name -> kind."""
    shared = tomllib.loads((FOLDER / _SHARED).read_text("utf-8"))
    return {
        path.stem: _kind(tomllib.loads(path.read_text("utf-8")), shared)
        for path in sorted(FOLDER.glob("*.toml"))
        if path.name != _SHARED
    }


def _kind(spec: Mapping[str, Any], shared: Mapping[str, Any]) -> Kind:
    return Kind(
        names=tuple(spec["names"]),
        nouns=tuple(spec["nouns"]),
        facets=tuple(
            _facet({**shared.get(facet.get("is", ""), {}), **facet}) for facet in spec["facets"]
        ),
        fillers=tuple(spec["fillers"]),
    )


def _facet(spec: Mapping[str, Any]) -> Facet:
    said, usual = _speaker(spec)
    choices = tuple(spec.get("choices", ()))
    if "one_of" in spec and not choices:
        choices = ({text.casefold(): text for text in spec["one_of"]},)
    return Facet(
        names=tuple(spec["names"]),
        descriptions=tuple(spec["descriptions"]),
        kinds=spec.get("as", usual),
        said=said,
        share=spec.get("share", 0.5),
        choices=choices,
        examples=tuple(spec["one_of"][:2]) if spec.get("is") == "brand" else (),
    )


def _speaker(spec: Mapping[str, Any]) -> tuple[Speaker, Mapping[str, float]]:
    """Returns the facet's speaker, and the usual types of its questions."""
    if "one_of" in spec:
        return one_of(*spec["one_of"]), {"text": 1.0}
    if "codes" in spec:
        return code(*spec["codes"]), {"text": 1.0}
    if "numbers" in spec:
        whole = all("." not in number for number in spec["numbers"])
        return measure(spec["numbers"], spec["forms"], whole=whole), _WHOLE if whole else _DECIMAL
    if "yes" in spec:
        return yes_no(spec["yes"], spec["no"], spec.get("truth", 0.75)), {"boolean": 1.0}
    if "meaning" in spec:
        kept = {key: spec["meaning"][key] for key in spec.get("keys", spec["meaning"])}
        return meaning(kept), {"choice": 1.0}
    if "several" in spec:
        return several(spec["several"], spec.get("counted", False)), {"list": 1.0}
    assert spec.get("prices"), f"a facet that says nothing: {spec}"
    return price(), {"number": 1.0}
