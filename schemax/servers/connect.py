"""A server's address becomes a model, its tokenizer, and what comes with these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from schemax.compiler.byte_codec import ByteCodec
from schemax.compiler.tokenizer import as_codec
from schemax.errors import ModelError
from schemax.runtime.loading.load import Loaded, load_tokenizer
from schemax.servers.chat import ChatModel
from schemax.servers.client import Client
from schemax.servers.completions import CompletionsModel
from schemax.servers.dialects import find_served


def connect(
    url: str,
    *,
    model: str | None = None,
    tokenizer: Any = None,
    api_key: str | None = None,
    kind: str = "auto",
    concurrency: int = 32,
    timeout: float = 600.0,
) -> Loaded:
    """Like `load`, of a model that a server runs; see `Extractor.from_server`.

    Raises ServerError for a server that does not answer or refuses, ModelError for a tokenizer that
    cannot be read, ValueError for settings that do not fit.
    """
    client = Client(url, api_key=api_key, concurrency=concurrency, timeout=timeout)
    served = find_served(client, model, kind)
    if tokenizer is None and served.kind == "openai":
        unknown = ByteCodec()
        return Loaded(ChatModel(client, served, unknown), unknown)
    found = _tokenizer(tokenizer, served.model)
    codec = as_codec(found.tokenizer)
    return replace(found, model=CompletionsModel(client, served, codec), tokenizer=codec)


def _tokenizer(tokenizer: Any, model: str) -> Loaded:
    if tokenizer is not None and not isinstance(tokenizer, (str, Path)):
        return Loaded(None, tokenizer)
    try:
        return load_tokenizer(tokenizer or model)
    except ModelError as error:
        if tokenizer is not None:
            raise
        raise ModelError(
            f"the tokenizer of {model} is not known ({error}); name the folder or Hub id that the "
            'model was made from as `tokenizer`, or have it asked by chat, with the kind "openai"'
        ) from error
