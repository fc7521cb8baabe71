"""For models whose tokens are not known, since they are asked for texts: every byte is a token."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from schemax.compiler.tokenizer import TextCodec, byte_characters


class ByteCodec(TextCodec):
    """Whose ids are bytes. A chat consists of the message alone, as the server is sent it."""

    def __init__(self) -> None:
        backend = Tokenizer(models.BPE(vocab=byte_characters(), merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        super().__init__(backend, chat_template="{{ messages[0].content }}")
