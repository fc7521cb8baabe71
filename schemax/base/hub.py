"""Checks that the Hugging Face Hub answers, to avoid long waits without a network."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from pathlib import Path

from huggingface_hub import constants, is_offline_mode, try_to_load_from_cache
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    get_session,
    validate_repo_id,
)

from schemax.base.messages import clipped, warn
from schemax.errors import ModelError

# Seconds that the Hub has to answer before anything is said, which is all for what lies in its
# cache; and seconds that it has in all.
_PATIENCE, _LONGEST_PATIENCE = 1.0, 4.0

# One of these is in the cache if anything of a model, an adapter or a tokenizer is.
_KNOWN_BY = ("config.json", "adapter_config.json", "tokenizer.json")


def cached_folder(name: str, revision: str | None = None) -> Path | None:
    """The folder of the cache that holds a repository, if the Hub does not answer; None if it does.

    A warning (UserWarning) says so where it takes longer than a second to find out.

    Raises ModelError within 4 seconds for one that is not there either, and for a malformed name.
    """
    try:
        validate_repo_id(name)
    except ValueError as error:
        raise ModelError(f"{name} is neither a folder nor a name on the Hub: {error}") from error
    found = (try_to_load_from_cache(name, file, revision=revision) for file in _KNOWN_BY)
    folder = next((Path(path).parent for path in found if isinstance(path, str)), None)
    if is_offline_mode():
        problem: str | None = "HF_HUB_OFFLINE is set"
    else:
        problem = _silence(name, _PATIENCE if folder else _LONGEST_PATIENCE)
    if problem is not None and folder is None:
        raise ModelError(
            f"{name} is neither a folder nor in the Hub's cache, and {constants.ENDPOINT} cannot "
            f"be asked: {problem}"
        )
    return None if problem is None else folder


def _silence(name: str, seconds: float) -> str | None:
    """The reason why the Hub gives no answer within the seconds; None if it gives any answer."""
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=seconds)
        except Exception as error:  # of whichever client huggingface_hub has, or of the network
            answers.put(clipped(str(error)) or type(error).__name__)
        else:
            answers.put(None)

    # A thread, as looking up a name knows no time limit.
    threading.Thread(target=ask, name="schemax-hub", daemon=True).start()
    with suppress(queue.Empty):
        return answers.get(timeout=_PATIENCE)
    if seconds > _PATIENCE:
        warn(f"waiting for {constants.ENDPOINT}, to look for {name}")
        with suppress(queue.Empty):
            return answers.get(timeout=seconds - _PATIENCE)
    return f"no answer within {seconds:g} seconds"
