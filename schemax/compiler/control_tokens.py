"""Control tokens, which no document may write.

Special tokens and byte tokens are entries of a tokenizer's vocabulary. Without being told of added
tokens, most tokenizers cannot find them in a text, but some find every entry: Unigram always, BPE
where it looks words up as a whole (`ignore_merges`) or where a merge makes the entry. The text of
such a token is cut behind its first character, right before the tokenizer's model sees it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schemax.errors import ModelError

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

# Places of a token in a document: its neighbours decide how text is cut into words.
_PLACES = ("{}", "a{}a", "\n{} a")


def control_tokens(
    spec: Mapping[str, Any], vocab: Mapping[str, int], named: Iterable[str], *, byte_level: bool
) -> dict[str, int]:
    """The control tokens in the model's vocabulary, with their ids.

    Control tokens are added tokens, tokens that the tokenizer's settings name or that stand for a
    byte, and tokens that a Unigram tokenizer was given instead of learning them (their score is 0).
    White space is text, unless it is special.
    """
    model = spec["model"]
    added = spec.get("added_tokens") or []
    found = {token["content"] for token in added if token["special"] or token["content"].strip()}
    found.update(named)
    if model["type"] == "Unigram":
        given = (token for token, score in model["vocab"] if score == 0 and len(token) > 1)
        found.update(token for token in given if token.strip(" \t\r\n\u2581"))
    if not byte_level:
        found.update(token for token in vocab if BYTE_TOKEN.fullmatch(token))
    return {token: vocab[token] for token in sorted(found) if token in vocab}


def guarded(spec: dict[str, Any], controls: Iterable[str]) -> dict[str, Any]:
    """The tokenizer with a last pre-tokenizer that cuts the texts of control tokens.

    Returns the tokenizer unchanged if its model finds no control token in a text.
    """
    rests: dict[str, list[str]] = {}
    for token in filter(_is_found_by(spec["model"]), controls):
        if len(token) > 1:
            rests.setdefault(token[0], []).append(re.escape(token[1:]))
    if not rests:
        return spec
    ways = (f"{re.escape(first)}(?={'|'.join(some)})" for first, some in rests.items())
    cut = {
        "type": "Split",
        "pattern": {"Regex": "|".join(ways)},
        "behavior": "Isolated",
        "invert": False,
    }
    before = spec.get("pre_tokenizer")
    steps = [cut] if before is None else [before, cut]
    return {**spec, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def check_guard(
    controls: Mapping[str, int],
    unknown: str | None,
    encode: Callable[[list[str]], list[list[int]]],
    decode: Callable[[list[int]], bytes],
) -> None:
    """Raises ModelError, naming it, for a control token that a document could still write."""
    texts = [(token, place.format(token)) for token in controls for place in _PLACES]
    for (token, text), ids in zip(texts, encode([text for _, text in texts]), strict=True):
        if controls[token] not in ids or token == unknown:
            continue
        # A document may hold the character that a byte token stands for.
        if BYTE_TOKEN.fullmatch(token) and decode(ids) == text.encode():
            continue
        raise ModelError(
            f"this tokenizer reads {token!r} in a document as its control token "
            f"{controls[token]}, so documents could write instructions; choose a model with "
            "another tokenizer"
        )


def _is_found_by(model: Mapping[str, Any]) -> Callable[[str], bool]:
    if model["type"] == "BPE" and not model.get("ignore_merges"):
        merges = model.get("merges") or ()
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
        return {"".join(pair) for pair in pairs}.__contains__
    return lambda _: True
