"""Twins: the same word without the space before it, as one token too.

A byte-level BPE that is trained on titles knows ` Leather` as one token, and spells `Leather`, as
it stands behind a quote in JSON, in two or three. To copy the word, a small model would have to
know how each token is spelt. A twin for every capitalised token makes copying one token for one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

_SPACE = "\u0120"  # how byte-level BPE writes a leading space


def add_twins(backend: tokenizers.Tokenizer) -> tuple[tokenizers.Tokenizer, list[tuple[int, int]]]:
    """A tokenizer with twins, and pairs of (id of the twin, id of the token with the space).

    Every merge that makes a capitalised word behind a space is followed by the same merge without
    the space, so that both are cut alike.
    """
    spec = json.loads(backend.to_str())
    vocab: dict[str, int] = spec["model"]["vocab"]
    merges, pairs = [], []
    known = {tuple(pair) for pair in spec["model"]["merges"]}
    next_id = max([*vocab.values(), *(token["id"] for token in spec["added_tokens"])]) + 1
    for left, right in spec["model"]["merges"]:
        merges.append([left, right])
        twin = (left[1:], right)
        if not left.startswith(_SPACE) or not left[1:2].isupper() or twin in known:
            continue
        known.add(twin)
        merges.append(list(twin))
        if "".join(twin) not in vocab:
            pairs.append((next_id, vocab[left + right]))
            vocab["".join(twin)] = next_id
            next_id += 1
    spec["model"]["merges"] = merges
    return tokenizers.Tokenizer.from_str(json.dumps(spec)), pairs


def grow_embeddings(weights: Tensor, pairs: Sequence[tuple[int, int]], known: Tensor) -> Tensor:
    """(V, H) embeddings -> (V + P, H): a twin begins as its token, moved as known twins are.

    known: (M, 2) ids of tokens without and with the space that were there before.
    """
    move = (weights[known[:, 0]] - weights[known[:, 1]]).mean(dim=0)
    sources = torch.tensor([source for _, source in pairs])
    return torch.cat([weights, weights[sources] + move])


def known_twins(vocab: dict[str, int]) -> Tensor:
    """(M, 2) ids of capitalised tokens without and with the space before them."""
    found = [
        (vocab[token[1:]], number)
        for token, number in vocab.items()
        if token.startswith(_SPACE) and token[1:2].isupper() and token[1:] in vocab
    ]
    return torch.tensor(found)


def grow(folder: Path) -> None:
    """Gives twins to the tokenizer and the model of a folder, in place. Train it on afterwards."""
    path = folder / "tokenizer.json"
    before = tokenizers.Tokenizer.from_file(str(path))
    after, pairs = add_twins(before)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    weights = model.get_input_embeddings().weight.detach()
    grown = grow_embeddings(weights, pairs, known_twins(before.get_vocab()))
    model.resize_token_embeddings(len(grown), mean_resizing=False)
    model.get_input_embeddings().weight.data.copy_(grown)
    model.save_pretrained(folder)
    after.save(str(path))
