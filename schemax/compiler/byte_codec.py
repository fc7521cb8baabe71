"""A codec for models behind servers that take texts, not tokens: every byte is a token."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from schemax.compiler.token_bytes import BYTE_CHARACTERS
from schemax.compiler.tokenizer import TextCodec

_ROLES = ("system", "user", "assistant")
_NUM_BYTES = 256


class ByteCodec(TextCodec):
    """A codec whose ids are bytes, and one id more per role, which begins a message.

    The server applies its own chat template: it is sent messages.
    """

    def __init__(self) -> None:
        backend = Tokenizer(models.BPE(vocab=BYTE_CHARACTERS, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([AddedToken(f"<|{role}|>", special=True) for role in _ROLES])
        template = "{% for one in messages %}<|{{ one.role }}|>{{ one.content }}{% endfor %}"
        super().__init__(backend, chat_template=template)

    def messages(self, ids: Iterable[int]) -> list[dict[str, str]]:
        """Splits a prompt into messages; ids before the first role are a message of the user."""
        found: list[dict[str, str]] = []
        for is_role, run in groupby(ids, key=lambda token: token >= _NUM_BYTES):
            if is_role:
                found += [{"role": _ROLES[token - _NUM_BYTES], "content": ""} for token in run]
                continue
            if not found:
                found.append({"role": "user", "content": ""})
            found[-1]["content"] = bytes(run).decode("utf-8", "replace")
        return found
