"""Servers in the place of models of this machine: their options, and extractors that ask them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from schemax.commands import options
from schemax.commands.console import UsageError, refused_settings
from schemax.commands.option_groups import option
from schemax.extractor import Extractor


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A server's model"""

    server: str | None = option(
        "Have a server of OpenAI's protocol run the model, http://localhost:8000/v1. --model is "
        "then what it calls the model, by default its first one. The key: $SCHEMAX_API_KEY, else "
        "$OPENAI_API_KEY.",
        metavar="URL",
    )
    server_kind: Literal["auto", "vllm", "sglang", "llama.cpp", "openai"] = option(
        "auto asks the server; openai without --tokenizer sends one chat request per document.",
        default="auto",
    )
    tokenizer: str | None = option(
        "Folder or Hub id of the tokenizer of the server's model. Default: what --model names.",
        metavar="MODEL",
    )
    concurrency: int = option("Requests in flight.", default=32, min=1)

    def check(self, device: str, dtype: str, loading: Mapping[str, object]) -> None:
        """Raises UsageError for options that do not go together."""
        if self.server is None:
            if self.tokenizer is not None or self.server_kind != "auto":
                name = "server-kind" if self.tokenizer is None else "tokenizer"
                raise UsageError(f"--{name} requires --server")
        elif (device, dtype) != ("auto", "auto") or loading:
            raise UsageError("device, dtype and loading are up to the server: leave them out")

    def reader(
        self, model: str | None, device: str, dtype: str, loading: Mapping[str, Any]
    ) -> Extractor:
        """What asks the server, where one is named; else a model that is loaded here."""
        if self.server is not None:
            return self.extractor(model)
        return options.load_extractor(model, device, dtype, **loading)

    def extractor(self, model: str | None) -> Extractor:
        """What asks the server. Raises UsageError, and ModelError where the server does not do."""
        assert self.server is not None
        with refused_settings():
            return Extractor.from_server(
                self.server,
                model=model,
                tokenizer=self.tokenizer,
                kind=self.server_kind,
                concurrency=self.concurrency,
            )


def is_address(name: str | None) -> bool:
    return name is not None and name.startswith(("http://", "https://"))


def by_chat(address: str) -> Extractor:
    """What asks a server by chat: URL, or URL#MODEL. Raises UsageError, ModelError."""
    url, _, model = address.partition("#")
    return ServerOptions(server=url, server_kind="openai").extractor(model or None)
