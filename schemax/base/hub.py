"""Checks that the Hugging Face Hub answers, to ask it once without a network, and to say so."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    get_session,
    validate_repo_id,
)

from schemax.base.messages import clipped
from schemax.errors import ModelError

# One of these is in the cache if anything of a model, an adapter or a tokenizer is.
_KNOWN_BY = ("config.json", "adapter_config.json", "tokenizer.json")


def cached_folder(name: str, revision: str | None = None) -> Path | None:
    """The folder of the cache that holds a repository, if the Hub does not answer; None if it does.

    HF_HUB_OFFLINE and HF_HUB_ETAG_TIMEOUT say whether, and how long, the Hub is asked.

    Raises ModelError for one that is not there either, and for a malformed name.
    """
    try:
        validate_repo_id(name)
    except ValueError as error:
        raise ModelError(f"{name} is neither a folder nor a name on the Hub: {error}") from error
    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        return None
    except Exception as error:  # of whichever client huggingface_hub has, or of the network
        for file in _KNOWN_BY:
            path = try_to_load_from_cache(name, file, revision=revision)
            if isinstance(path, str):
                return Path(path).parent
        raise ModelError(
            f"{name} is neither a folder nor in the Hub's cache, and {constants.ENDPOINT} cannot "
            f"be asked: {clipped(str(error)) or type(error).__name__}"
        ) from error
