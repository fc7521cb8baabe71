"""A model that costs next to nothing and writes values as a trained model would.

It is a Qwen3 of one layer and width 16. Embeddings and output head hold a table, written by hand,
of tokens that follow each other: a quote or null after a key, a word after a quote, a word or the
end of the string after a word. All else is random: the tokens read decide between tokens that may
follow, so that values and their lengths differ from slot to slot. The model chooses every token by
its logits, and grammars mask these as with any other model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

_WIDTH = 16
_SCATTER = 30.0
_NOISE = 0.4

# Kinds of tokens, by bytes. In this order, kinds that another one follows are dimensions.
_KINDS: Mapping[str, re.Pattern[bytes]] = {
    "key": re.compile(rb".*:"),
    "quote": re.compile(rb' "'),
    "word": re.compile(rb" [a-z]{3,5}"),
    "digit": re.compile(rb" |\d"),
    "null": re.compile(rb" null"),
    "boolean": re.compile(rb" (tr|fal).*"),
    "end of string": re.compile(rb'",?\n?'),
    "end of number": re.compile(rb",\n?"),
}
# The advantage of tokens that follow over all others, whose logits vary by about 1. The largest
# logit of hundreds of words counts, so an end beside them needs more.
_FOLLOWS: Mapping[str, Mapping[str, float]] = {
    "key": {"quote": 8.7, "null": 8.0},
    "quote": {"word": 8.0},
    "word": {"word": 8.0, "end of string": 10.0},
    "digit": {"digit": 8.0, "end of number": 9.0},
}
# The advantages behind keys of slots whose grammars choose between these kinds.
_FOLLOWS_TYPED = {"key": {"quote": 8.7, "null": 8.0, "digit": 9.0, "boolean": 9.0}}


class _Scatter(nn.Module):
    """Replaces the last norm: keeps the marks, and turns all other dimensions into noise.

    Hidden states of different documents and keys differ little. Folded many times over, the
    differences are as large as the values.
    """

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., 16) -> (..., 16)."""
        marks, others = hidden[..., : len(_FOLLOWS)], hidden[..., len(_FOLLOWS) :]
        return torch.cat([marks, (others * _SCATTER).sin()], dim=-1)


@torch.no_grad()
def tiny_writer(
    token_bytes: Sequence[bytes], vocab_size: int, *, typed: bool = False, seed: int = 0
) -> Any:
    """Makes the model of this module, for outputs in JSON.

    token_bytes: the bytes of every token; typed: whether slots hold numbers, booleans, choices and
        dates instead of free text.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = Qwen3ForCausalLM(_config(vocab_size))
    random = torch.Generator().manual_seed(seed)
    count = len(_FOLLOWS)
    for layer in model.model.layers:
        for weight in layer.parameters():
            if weight.dim() == 2:
                weight.normal_(0, 0.5, generator=random)
        for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
            last.weight[:count] = 0  # the marks stay as they are
    model.model.norm = _Scatter()
    embeddings = torch.empty(vocab_size, _WIDTH).normal_(generator=random)
    head = torch.empty(vocab_size, _WIDTH).normal_(0, _NOISE, generator=random)
    embeddings[:, :count] = head[:, :count] = 0
    kinds = {name: _tokens_of(pattern, token_bytes) for name, pattern in _KINDS.items()}
    follows = {**_FOLLOWS, **(_FOLLOWS_TYPED if typed else {})}
    for dimension, (name, followers) in enumerate(follows.items()):
        embeddings[kinds[name], dimension] = 1
        for follower, advantage in followers.items():
            head[kinds[follower], dimension] = advantage
    model.get_input_embeddings().weight.copy_(embeddings)
    model.get_output_embeddings().weight.copy_(head)
    return model.eval()


def _config(vocab_size: int) -> Any:
    make: Any = Qwen3Config  # its signature lacks the arguments of all configurations
    return make(
        vocab_size=vocab_size,
        hidden_size=_WIDTH,
        intermediate_size=_WIDTH,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=_WIDTH,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


def _tokens_of(pattern: re.Pattern[bytes], token_bytes: Sequence[bytes]) -> list[int]:
    return [number for number, data in enumerate(token_bytes) if pattern.fullmatch(data)]
