"""Resources of the package: data folders, its version, the purpose of the embedded model."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

EMBEDDED_WARNING = (
    "using the embedded model: 6.6 million parameters, trained on product titles of ten categories "
    "(shoes, vitamins, coffee, toothbrushes, breakfast cereal, sunscreen, conditioner, laundry "
    "detergent, safety masks, tea). It reads other texts in English too, with many mistakes: for "
    "real work, name a model of your own with `model` or in SCHEMAX_MODEL"
)

OURS = ("embedded", "small")
"""Models that travel with the package, by the names of their folders."""

_PACKAGE = Path(__file__).resolve().parents[1]


def resource_dir(name: str) -> Path:
    """The folder of one of `OURS`, or a data folder such as "templates".

    Data folders lie inside the installed package, else in the checkout.
    """
    if name in OURS:
        return _PACKAGE / "weights" / name
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def named_model(name: str | Path) -> str | Path:
    """Folder or Hub id; the name of one of `OURS` is its folder, unless a folder here has it."""
    return resource_dir(str(name)) if str(name) in OURS and not Path(name).is_dir() else name


def is_embedded(place: str | Path) -> bool:
    return place == resource_dir("embedded")


def default_model() -> str | Path:
    """The model that $SCHEMAX_MODEL names, else the folder of the embedded model."""
    return named_model(os.environ.get("SCHEMAX_MODEL") or "embedded")


def version() -> str:
    """The version of the installed distribution; "(not installed)" in a bare checkout."""
    try:
        return metadata.version("schemax-hpd")
    except metadata.PackageNotFoundError:
        return "(not installed)"
