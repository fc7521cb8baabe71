"""Resources: data folders, the package's version, its models, and the cache of the Hub."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any

from schemax.base.messages import clipped
from schemax.errors import ModelError

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
    """Folder or Hub id; a name in `OURS` is the folder of that model, unless a folder has it."""
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


# The cache holds one of these files if it holds a model, an adapter or a tokenizer.
_KNOWN_BY = ("config.json", "adapter_config.json", "tokenizer.json")

# The files fetched of every repository: its configs, templates and tokenizer.
_FETCHED = ("*.json", "*.jinja", "*.model", "merges.txt", "seen.npz")


def fetched(name: str | Path, revision: str | None = None, *weights: str) -> Path:
    """The place itself if it exists; else the folder of a repository of the Hub in its cache.

    If the Hub answers, the folder is brought up to date with its files but weights, and with the
    weights named. HF_HUB_OFFLINE and HF_HUB_ETAG_TIMEOUT say whether, and how long, it is asked.

    Raises ModelError for a malformed name, and for a repository that the Hub does not give, or
    that its cache lacks if it cannot be asked.
    """
    if Path(name).exists():
        return Path(name)
    name = str(name)
    # Slow to import, and needed for models of the Hub alone.
    from huggingface_hub import constants, snapshot_download, try_to_load_from_cache
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        get_session,
        validate_repo_id,
    )

    try:
        validate_repo_id(name)
    except ValueError as error:
        raise ModelError(f"{name} is neither a folder nor a name on the Hub: {error}") from error
    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:  # of whichever client huggingface_hub has, or of the network
        for file in _KNOWN_BY:
            path = try_to_load_from_cache(name, file, revision=revision)
            if isinstance(path, str):
                return Path(path).parent
        raise ModelError(
            f"{name} is neither a folder nor in the Hub's cache, and {constants.ENDPOINT} cannot "
            f"be asked: {clipped(str(error)) or type(error).__name__}"
        ) from error
    # Folders in repositories hold checkpoints and weights of other libraries.
    patterns: Any = {"allow_patterns": [*_FETCHED, *weights], "ignore_patterns": ["*/*"]}
    try:
        return Path(snapshot_download(name, revision=revision, **patterns))
    except Exception as error:  # as above
        raise ModelError(
            f"{name} is not a folder on this machine and cannot be fetched from the Hub: "
            f"{clipped(str(error)) or type(error).__name__}"
        ) from error
