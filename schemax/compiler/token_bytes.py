"""The bytes of a vocabulary's tokens, in the alphabets of byte-level BPE and SentencePiece."""

from __future__ import annotations

from schemax.compiler.control_tokens import BYTE_TOKEN


def _byte_characters() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return table


BYTE_CHARACTERS = _byte_characters()
"""GPT-2's byte alphabet: printable bytes stand for themselves, the others for U+0100 on."""


def bytes_of_byte_level(token: str) -> bytes:
    """The bytes of a token in GPT-2's alphabet; an added token stands for its own text."""
    if all(character in BYTE_CHARACTERS for character in token):
        return bytes(BYTE_CHARACTERS[character] for character in token)
    return token.encode()


def bytes_of_sentencepiece(token: str) -> bytes:
    """The bytes of a token of SentencePiece, whose spaces are U+2581."""
    if match := BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace("\u2581", " ").encode()
