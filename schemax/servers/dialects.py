"""The kinds of servers, and what each takes beside OpenAI's own protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from schemax.errors import ServerError
from schemax.servers.client import Client

Kind = Literal["vllm", "sglang", "llama.cpp", "llama-cpp-python", "schemax", "openai"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect: what the completions of a kind of server take.

    always: sent with every one. most_top: log-probabilities that are told of a token, at most.
    grammar: the fields that hold a grammar in GBNF; None where there are none.
    slots: how many prompts the server remembers, each until a request takes its slot; None for a
        prefix cache, which finds the beginnings of all prompts again.
    tells: whether it is asked for probabilities where nobody says so.
    response_format: which of the ways to send a schema to a chat it is known to take.
    """

    most_top: int
    always: Mapping[str, Any] = field(default_factory=dict)
    grammar: Callable[[str], dict[str, Any]] | None = None
    slots: int | None = None
    tells: bool = True
    response_format: int = 0


DIALECTS: Mapping[Kind, Dialect] = MappingProxyType(
    {
        "vllm": Dialect(
            20,
            {"return_tokens_as_token_ids": True, "include_stop_str_in_output": True},
            lambda grammar: {"structured_outputs": {"grammar": grammar}},
        ),
        "sglang": Dialect(
            20,
            {"no_stop_trim": True, "return_token_ids": True},
            lambda grammar: {"ebnf": grammar},
        ),
        "llama.cpp": Dialect(
            20,
            # Where the server's own default would not leave probabilities as they are.
            {"cache_prompt": True, "repeat_penalty": 1.0},
            lambda grammar: {"grammar": grammar},
            slots=1,  # unless it says otherwise
        ),
        "llama-cpp-python": Dialect(
            20,
            {"repeat_penalty": 1.0},
            lambda grammar: {"grammar": grammar},
            slots=1,
            # It sorts the vocabulary in Python for every token, and the prompt's logits are kept.
            tells=False,
            response_format=1,
        ),
        "schemax": Dialect(0),  # which has no completions, and is asked for slots
        "openai": Dialect(5),
    }
)
KINDS = ("auto", *DIALECTS)

_OWNERS: Mapping[str, Kind] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
    "me": "llama-cpp-python",  # as it calls itself
    "schemax": "schemax",
}
# What servers say of a field that they do not take; llama-cpp-python fails at it.
NOT_TAKEN = (400, 415, 422, 500, 501)


@dataclass(frozen=True, slots=True)
class Served:
    """A model as a server offers it.

    context: its tokens, prompt and output; None if the server does not say. slots: how many prompts
    the server remembers, one for each request that it works on; None for a prefix cache.
    tells: whether it is asked for probabilities.
    """

    model: str
    kind: Kind
    context: int | None
    slots: int | None = None
    tells: bool = True

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.kind]


@dataclass(frozen=True, slots=True)
class Completions:
    """The way to ask a server's completions. takes_ids: for prompts as token ids, else as text.

    top: how many log-probabilities it tells of every token; None if it tells none.
    """

    takes_ids: bool
    top: int | None


def find_served(
    client: Client, model: str | None, kind: str, probabilities: bool | None = None
) -> Served:
    """Asks a server what it is. model: as the server names it; None takes its first.

    probabilities: whether it is to tell them; None leaves that to the kind of server.

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
    dialect = DIALECTS[found]  # type: ignore[index]
    return Served(
        model,
        found,  # type: ignore[arg-type]
        size if isinstance(size, int) else None,
        (_told_slots(client) if found == "llama.cpp" else None) or dialect.slots,
        dialect.tells if probabilities is None else probabilities,
    )


def _told_slots(client: Client) -> int | None:
    """The number of slots that llama-server tells of; None for one that does not."""
    try:
        found = client.call("/../props").get("total_slots")  # which stands beside /v1
    except ServerError:
        return None
    return found if isinstance(found, int) and found > 0 else None


def find_completions(client: Client, served: Served, ids: Sequence[int], text: str) -> Completions:
    """Asks for a token, to learn how completions are to be asked for.

    ids, text: a prompt in both forms. Raises ServerError for a server without completions.
    """
    refused: ServerError | None = None
    tops = dict.fromkeys((served.dialect.most_top, 5, None)) if served.tells else (None,)
    for takes_ids in (True, False):
        for top in tops:
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
