"""Servers in the place of models of this machine: their options, and extractors that ask them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from schemax.commands import options
from schemax.commands.console import UsageError, refused_settings
from schemax.commands.option_groups import option
from schemax.extractor import Extractor
from schemax.prompt_file import PromptLike


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A server's model"""

    server: str | None = option(
        "Have a server of OpenAI's protocol run the model, http://localhost:8000/v1. --model is "
        "then what it calls the model, by default its first one. The key: $SCHEMAX_API_KEY, else "
        "$OPENAI_API_KEY.",
        metavar="URL",
    )
    server_kind: Literal[
        "auto", "vllm", "sglang", "llama.cpp", "llama-cpp-python", "schemax", "openai"
    ] = option(
        "auto asks the server; openai without --tokenizer sends one chat request per document.",
        default="auto",
    )
    tokenizer: str | None = option(
        "Folder or Hub id of the tokenizer of the server's model. Default: what --model names.",
        metavar="MODEL",
    )
    probabilities: bool | None = option(
        "Ask the server for probabilities, without which there are no confidences. Default: all "
        "kinds but llama-cpp-python, where they take most of the time.",
        "--probabilities/--no-probabilities",
    )
    concurrency: int = option("Requests in flight.", default=32, min=1)

    def check(self, device: str, dtype: str, loading: Mapping[str, object]) -> None:
        """Raises UsageError for options that do not go together."""
        if self.server is None:
            needed = {
                "tokenizer": self.tokenizer is not None,
                "server-kind": self.server_kind != "auto",
                "probabilities": self.probabilities is not None,
            }
            if given := [name for name, is_given in needed.items() if is_given]:
                raise UsageError(f"--{given[0]} requires --server")
        elif (device, dtype) != ("auto", "auto") or loading:
            raise UsageError("device, dtype and loading are up to the server: leave them out")

    def reader(
        self,
        model: str | None,
        device: str,
        dtype: str,
        loading: Mapping[str, Any],
        prompt: PromptLike | None = None,
    ) -> Extractor:
        """What asks the server, where one is named; else a model that is loaded here."""
        if self.server is not None:
            return self.extractor(model, prompt)
        return options.load_extractor(model, device, dtype, prompt=prompt, **loading)

    def extractor(self, model: str | None, prompt: PromptLike | None = None) -> Extractor:
        """What asks the server. Raises UsageError, and ModelError where the server does not do."""
        assert self.server is not None
        with refused_settings():
            return Extractor.from_server(
                self.server,
                model=model,
                tokenizer=self.tokenizer,
                kind=self.server_kind,
                probabilities=self.probabilities,
                concurrency=self.concurrency,
                prompt=prompt,
            )


def is_address(name: str | None) -> bool:
    return name is not None and name.startswith(("http://", "https://"))


def by_chat(address: str) -> Extractor:
    """What asks a server by chat: URL, or URL#MODEL. Raises UsageError, ModelError."""
    url, _, model = address.partition("#")
    return ServerOptions(server=url, server_kind="openai").extractor(model or None)
