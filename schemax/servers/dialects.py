"""The kinds of servers, and the options that each takes beyond OpenAI's own protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from schemax.errors import ServerError
from schemax.servers.client import Client

ServerKind = Literal["vllm", "sglang", "llama.cpp", "llama-cpp-python", "schemax", "openai"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect: the options that a kind of server takes.

    most_top: the most log-probabilities per token.
    always: fields sent with every completion.
    grammar: makes the fields that hold a grammar in GBNF; None if the server takes no grammars.
    slots: the number of prompts that the server remembers, each until a request takes its slot;
        None for a prefix cache, which matches the beginnings of all prompts.
    tells: True if the server is asked for probabilities by default.
    scores: True if it tells a token's probability as it was before the token was forced by a bias,
        so that any given token's probability can be asked for.
    response_format: the index of the first way to send a schema to a chat that the server may take.
    """

    most_top: int
    always: Mapping[str, Any] = field(default_factory=dict)
    grammar: Callable[[str], dict[str, Any]] | None = None
    slots: int | None = None
    tells: bool = True
    scores: bool = False
    response_format: int = 0


DIALECTS: Mapping[ServerKind, Dialect] = MappingProxyType(
    {
        "vllm": Dialect(
            20,
            {"return_tokens_as_token_ids": True, "include_stop_str_in_output": True},
            lambda grammar: {"structured_outputs": {"grammar": grammar}},
            scores=True,
        ),
        "sglang": Dialect(
            20,
            {"no_stop_trim": True, "return_token_ids": True},
            lambda grammar: {"ebnf": grammar},
        ),
        "llama.cpp": Dialect(
            20,
            # Other defaults of the server might change probabilities.
            {"cache_prompt": True, "repeat_penalty": 1.0},
            lambda grammar: {"grammar": grammar},
            slots=1,  # unless the server reports another number
        ),
        "llama-cpp-python": Dialect(
            20,
            {"repeat_penalty": 1.0},
            lambda grammar: {"grammar": grammar},
            slots=1,
            # For probabilities it sorts the vocabulary in Python for every token, and keeps the
            # logits of the prompt.
            tells=False,
            response_format=1,
        ),
        "schemax": Dialect(0),  # without completions; it is asked for slots
        "openai": Dialect(5),
    }
)
KINDS = ("auto", *DIALECTS)

_OWNERS: Mapping[str, ServerKind] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
    "me": "llama-cpp-python",  # the server's own name for itself
    "schemax": "schemax",
}
NOT_TAKEN = (400, 415, 422, 500, 501)
"""The statuses of servers for a field that they do not take; llama-cpp-python fails with 500."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model that a server offers.

    context: the most tokens of prompt and output; None if the server reports none.
    slots: the number of prompts that the server remembers, one per concurrent request; None for a
        prefix cache.
    tells: True if the server is asked for probabilities.
    """

    model: str
    kind: ServerKind
    context: int | None
    slots: int | None = None
    tells: bool = True

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.kind]


def find_served(
    client: Client, model: str | None, kind: str, probabilities: bool | None = None
) -> Served:
    """Asks a server for its kind and model.

    model: the server's name for the model; None for the first.
    probabilities: whether the server is asked for them; None for the default of its kind.

    Raises ServerError if there is no server, or no model; ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of server {kind!r}; there are {', '.join(KINDS)}")
    try:
        listed = client.call("/models").get("data")
    except ServerError as error:
        if error.status != 404 or client.url.endswith("/v1"):
            raise
        raise ServerError(f"{error}; perhaps the address is {client.url}/v1") from error
    entries = (
        [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    )
    if model is None:
        if not entries or not isinstance(entries[0].get("id"), str):
            raise ServerError(f"{client.url}/models names no model; name one")
        model = entries[0]["id"]
    entry = next((item for item in entries if item.get("id") == model), {})
    owners = {str(item.get("owned_by")) for item in ([entry] if entry else entries)}
    # A model that is not listed has the owner of the listed models, if they share one.
    owner = owners.pop() if len(owners) == 1 else ""
    known_kind: ServerKind = _OWNERS.get(owner, "openai") if kind == "auto" else kind  # type: ignore[assignment]
    size = entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")
    dialect = DIALECTS[known_kind]
    return Served(
        model,
        known_kind,
        size if isinstance(size, int) else None,
        (_reported_slots(client) if known_kind == "llama.cpp" else None) or dialect.slots,
        dialect.tells if probabilities is None else probabilities,
    )


def _reported_slots(client: Client) -> int | None:
    """The number of slots that llama-server reports; None if it reports none."""
    try:
        count = client.call("/../props").get("total_slots")  # /props stands beside /v1
    except ServerError:
        return None
    return count if isinstance(count, int) and count > 0 else None
