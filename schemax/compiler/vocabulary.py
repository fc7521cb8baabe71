"""The vocabulary of a tokenizer, read from its JSON: the bytes of tokens, and control tokens.

No document may write a control token. Special tokens and byte tokens are entries of a vocabulary.
Without being told of added tokens, most tokenizers cannot find them in a text, but some find every
entry: Unigram always, BPE where it looks words up as a whole (`ignore_merges`) or where a merge
makes the entry. The text of such a token is cut behind its first character, right before the
tokenizer's model sees it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schemax.errors import ModelError

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def ids_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """The model's tokens with their ids, without added tokens.

    Raises ModelError for a model that drops characters.
    """
    model = spec["model"]
    if model["type"] == "BPE":
        return dict(model["vocab"])
    if model["type"] == "Unigram":
        return {token: index for index, (token, _score) in enumerate(model["vocab"])}
    raise ModelError(
        f"{model['type']} tokenizers drop characters; use a decoder-only model with a BPE "
        "or Unigram tokenizer"
    )


# --- bytes ---------------------------------------------------------------------------------------


def byte_reader(spec: Mapping[str, Any]) -> Callable[[str], bytes]:
    """The function that returns a token's bytes."""
    return _bytes_of_byte_level if _is_byte_level(spec) else _bytes_of_sentencepiece


def _byte_characters() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unprintable = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + place): byte for place, byte in enumerate(unprintable)})
    return table


BYTE_CHARACTERS = _byte_characters()
"""GPT-2's byte alphabet: printable bytes stand for themselves, others are U+0100 and on."""


def _bytes_of_byte_level(token: str) -> bytes:
    """The bytes of a token in GPT-2's alphabet; an added token stands for its own text."""
    table = BYTE_CHARACTERS
    if all(character in table for character in token):
        return bytes(table[character] for character in token)
    return token.encode()


def _bytes_of_sentencepiece(token: str) -> bytes:
    """The bytes of a token of SentencePiece, whose spaces are U+2581."""
    if match := BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace("\u2581", " ").encode()


def _is_byte_level(spec: Mapping[str, Any]) -> bool:
    return any(_holds(spec.get(part), "ByteLevel") for part in ("pre_tokenizer", "decoder"))


def _holds(part: Any, kind: str) -> bool:
    if not isinstance(part, dict):
        return False
    children = part.get("pretokenizers") or part.get("decoders") or ()
    return part.get("type") == kind or any(_holds(child, kind) for child in children)


# --- control tokens ------------------------------------------------------------------------------


def control_tokens(spec: Mapping[str, Any], named: Iterable[str]) -> dict[str, int]:
    """The control tokens in the model's vocabulary, with their ids.

    Control tokens are added tokens, tokens that the tokenizer's settings name or that stand for a
    byte, and tokens that a Unigram tokenizer was given instead of learning them (their score is 0).
    White space is text, unless it is special. named: the tokens that the settings name.
    """
    model, ids = spec["model"], ids_of(spec)
    added = spec.get("added_tokens") or []
    controls = {token["content"] for token in added if token["special"] or token["content"].strip()}
    controls.update(named)
    if model["type"] == "Unigram":
        unlearned = (token for token, score in model["vocab"] if score == 0 and len(token) > 1)
        controls.update(token for token in unlearned if token.strip(" \t\r\n\u2581"))
    if not _is_byte_level(spec):
        controls.update(token for token in ids if BYTE_TOKEN.fullmatch(token))
    return {token: ids[token] for token in sorted(controls) if token in ids}


def guarded_tokenizer(spec: dict[str, Any], controls: Iterable[str]) -> dict[str, Any]:
    """The tokenizer with a last pre-tokenizer that cuts the texts of control tokens.

    Returns the tokenizer unchanged if its model finds no control token in a text.
    """
    ends: dict[str, list[str]] = {}
    for token in filter(_is_found_by(spec["model"]), controls):
        if len(token) > 1:
            ends.setdefault(token[0], []).append(re.escape(token[1:]))
    if not ends:
        return spec
    ways = (f"{re.escape(first)}(?={'|'.join(texts)})" for first, texts in ends.items())
    cut = {
        "type": "Split",
        "pattern": {"Regex": "|".join(ways)},
        "behavior": "Isolated",
        "invert": False,
    }
    before = spec.get("pre_tokenizer")
    steps = [cut] if before is None else [before, cut]
    return {**spec, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def _is_found_by(model: Mapping[str, Any]) -> Callable[[str], bool]:
    if model["type"] == "BPE" and not model.get("ignore_merges"):
        merges = model.get("merges") or ()
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
        return {"".join(pair) for pair in pairs}.__contains__
    return lambda _: True


def unknown_token(spec: Mapping[str, Any]) -> str | None:
    """The token that stands for characters without a token of their own."""
    model = spec["model"]
    if model["type"] == "Unigram":
        place = model.get("unk_id")
        return None if place is None else str(model["vocab"][place][0])
    token: str | None = model.get("unk_token")
    return token
