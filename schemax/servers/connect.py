"""`connect`: turns a server's address into a model, its tokenizer and metadata."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from schemax.base.messages import warn
from schemax.compiler.tokenizer import ByteCodec, as_codec
from schemax.errors import ModelError
from schemax.runtime.models.loading.load import Loaded, load_tokenizer
from schemax.servers.chat import ChatModel
from schemax.servers.client import Client
from schemax.servers.completions import CompletionsModel
from schemax.servers.dialects import Served, find_served
from schemax.servers.extraction import ExtractionModel


def connect(
    url: str,
    *,
    model: str | None = None,
    tokenizer: Any = None,
    api_key: str | None = None,
    kind: str = "auto",
    probabilities: bool | None = None,
    concurrency: int = 32,
    timeout: float = 600.0,
) -> Loaded:
    """Connects to a model that a server runs, as `load` loads one; see `Extractor.from_server`.

    Raises ServerError for a server that does not answer or refuses, ModelError for a tokenizer that
    cannot be read, ValueError for invalid settings.
    """
    client = Client(url, api_key=api_key, concurrency=concurrency, timeout=timeout)
    served = find_served(client, model, kind, probabilities)
    if served.kind == "schemax":
        if tokenizer is not None:
            raise ModelError(f"{client.url} is a server of schemax, which needs no `tokenizer`")
        codec = ByteCodec()
        return Loaded(ExtractionModel(client, served, codec), codec)
    if tokenizer is None and served.kind == "openai":
        return _by_chat(client, served)
    try:
        loaded = _tokenizer(tokenizer, served.model)
    except ModelError as error:
        if tokenizer is not None or served.slots is None:
            raise
        # Servers of GGUF files name models after the files, or as configured.
        warn(f"{client.url} is asked by chat: {error}")
        return _by_chat(client, served)
    own = as_codec(loaded.tokenizer)
    return replace(loaded, model=CompletionsModel(client, served, own), tokenizer=own)


def _by_chat(client: Client, served: Served) -> Loaded:
    codec = ByteCodec()
    return Loaded(ChatModel(client, served, codec), codec)


def _tokenizer(tokenizer: Any, model: str) -> Loaded:
    if tokenizer is not None and not isinstance(tokenizer, (str, Path)):
        return Loaded(None, tokenizer)
    try:
        return load_tokenizer(tokenizer or model)
    except ModelError as error:
        if tokenizer is not None:
            raise
        raise ModelError(
            f"the tokenizer of {model} is unknown ({error}); give the folder or Hub id that the "
            'model was made from as `tokenizer`, or have it asked by chat, with the kind "openai"'
        ) from error
