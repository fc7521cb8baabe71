"""What kinds of servers there are, and what each takes beside OpenAI's own protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from schemax.errors import ServerError
from schemax.servers.client import Client

Kind = Literal["vllm", "sglang", "llama.cpp", "openai"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What completions of a kind of server take.

    always: sent with every one. most_top: log-probabilities that are told of a token, at most.
    grammar: the fields that hold a grammar in GBNF; None where there are none.
    """

    most_top: int
    always: Mapping[str, Any] = field(default_factory=dict)
    grammar: Callable[[str], dict[str, Any]] | None = None


DIALECTS: Mapping[Kind, Dialect] = MappingProxyType(
    {
        "vllm": Dialect(
            20,
            {"return_tokens_as_token_ids": True, "include_stop_str_in_output": True},
            lambda grammar: {"structured_outputs": {"grammar": grammar}},
        ),
        "sglang": Dialect(20, {"no_stop_trim": True}, lambda grammar: {"ebnf": grammar}),
        "llama.cpp": Dialect(
            20,
            # Where the server's own default would not leave probabilities as they are.
            {"cache_prompt": True, "repeat_penalty": 1.0},
            lambda grammar: {"grammar": grammar},
        ),
        "openai": Dialect(5),
    }
)
KINDS = ("auto", *DIALECTS)

_OWNERS: Mapping[str, Kind] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
    "me": "llama.cpp",  # as llama-cpp-python calls itself
}
# What servers say of a field that they do not take; llama-cpp-python fails at it.
NOT_TAKEN = (400, 415, 422, 500, 501)


@dataclass(frozen=True, slots=True)
class Served:
    """A model as a server offers it.

    context: its tokens, prompt and output; None if the server does not say.
    """

    model: str
    kind: Kind
    context: int | None

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.kind]


@dataclass(frozen=True, slots=True)
class Completions:
    """How a server's completions are asked. takes_ids: for prompts as token ids, else as text.

    top: how many log-probabilities it tells of every token; None if it tells none.
    """

    takes_ids: bool
    top: int | None


def find_served(client: Client, model: str | None, kind: str) -> Served:
    """Asks a server what it is. model: as the server names it; None takes its first.

    Raises ServerError where there is no server, or one without models; ValueError for an unknown
    kind.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of server {kind!r}; there are {', '.join(KINDS)}")
    listed = client.call("/models").get("data")
    entries = (
        [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    )
    if model is None:
        if not entries or not isinstance(entries[0].get("id"), str):
            raise ServerError(f"{client.url}/models names no model; name one")
        model = entries[0]["id"]
    entry = next((item for item in entries if item.get("id") == model), {})
    found = _OWNERS.get(str(entry.get("owned_by")), "openai") if kind == "auto" else kind
    size = entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")
    return Served(model, found, size if isinstance(size, int) else None)  # type: ignore[arg-type]


def find_completions(client: Client, served: Served, ids: Sequence[int], text: str) -> Completions:
    """Asks for a token, to learn how completions are to be asked for.

    ids, text: a prompt in both forms. Raises ServerError for a server without completions.
    """
    refused: ServerError | None = None
    for takes_ids in (True, False):
        for top in dict.fromkeys((served.dialect.most_top, 5, None)):
            way = Completions(takes_ids, top)
            prompt = list(ids) if takes_ids else text
            try:
                client.call("/completions", completion(served, way, prompt, 1))
            except ServerError as error:
                if error.status in (404, 405):
                    raise ServerError(
                        f"{client.url} has no completions ({error}); without a tokenizer it is "
                        "asked by chat, one request per document",
                        status=error.status,
                    ) from error
                if error.status not in NOT_TAKEN:
                    raise
                refused = error
            else:
                return way
    assert refused is not None
    raise refused


def completion(
    served: Served, way: Completions, prompt: list[int] | str, max_tokens: int
) -> dict[str, Any]:
    """The body of a request for tokens behind a prompt, each the most probable one."""
    body = {
        "model": served.model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        **served.dialect.always,
    }
    return body if way.top is None else body | {"logprobs": way.top}
