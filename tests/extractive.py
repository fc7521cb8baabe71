"""The rule of extractive slots, said once more, slowly, and with nothing of the decoder in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from unicodedata import combining

import numpy as np
import numpy.typing as npt

from schemax.compiler import CompiledSchema, TextCodec
from schemax.formats import get_format
from schemax.tokens import DONE, SlotSpec, StopTable

Allowed = npt.NDArray[np.bool_]


def is_edge(before: str, after: str) -> bool:
    """Whether a text may start or end between two characters; "" is the line's end."""
    if not before or not after:
        return True
    letters = [one.lower() != one.upper() or combining(one) > 0 for one in (before, after)]
    return not all(letters) and not (before.isdigit() and after.isdigit())


@cache
def texts_in(document: str) -> frozenset[str]:
    """All texts that a value of this document may be."""
    found = set()
    for line in document.splitlines():
        padded = ["", *line.strip(), ""]
        edges = [n for n in range(len(padded) - 1) if is_edge(padded[n], padded[n + 1])]
        runs = {"".join(padded[a + 1 : b + 1]) for a in edges for b in edges}
        found |= {run for run in runs if run.strip() and run == run.rstrip()}
    return frozenset(found)


@cache
def written_in(document: str, name: str, null: bool) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """These as a format writes them, with the first byte behind them; and all that begins so."""
    output = get_format(name)
    found = {" null<" if name == "xml" else " null\n"} if null and name != "json" else set()
    for text in texts_in(document):
        literal = output.escape(text)
        if name == "yaml":
            inside = output.escape([f"{text}, "])[len(' ["') : -len(', "]')]
            found.add(f' "{inside}"')  # which may stand in the place of the plain one
            found |= set() if literal.startswith(' "') else {f"{literal}\n"}
        elif name == "json":
            found.add(literal)
        elif text != "null" and text == text.strip():  # else references
            found.add(f"{literal}<")
    whole = {one.encode() for one in found}
    return frozenset(whole), frozenset(one[:n] for one in whole for n in range(len(one) + 1))


def may_begin(data: bytes, document: str, name: str, null: bool) -> bool:
    """Whether a text slot's value may begin like this, or is followed by its end."""
    if name == "json" and (data == b" " or not data.startswith(b' "')):
        return True  # null, or a number
    whole, begun = written_in(document, name, null)
    return data in begun or any(data[:n] in whole for n in range(1, len(data)))


class Copied:
    """What a slot of a document may go on with, of what its grammar allows."""

    def __init__(self, document: str, name: str, codec: TextCodec) -> None:
        self._document, self._name, self._codec = document, name, codec

    def narrowed(
        self, written: Sequence[int], allowed: Sequence[Allowed], spec: SlotSpec, stop: StopTable
    ) -> Allowed:
        """(V,) tokens. allowed: what the grammar allows, at every place up to this one."""
        for place, mask in enumerate(allowed):
            before = self._codec.decode_bytes(written[:place])
            found = mask.copy()
            for token in np.flatnonzero(mask).tolist():
                data = before + self._codec.decode_bytes([token])
                found[token] = may_begin(data, self._document, self._name, spec.null_id >= 0)
            if not found.any():
                return _free(written, place, allowed, stop)
        return found


def _free(
    written: Sequence[int], place: int, allowed: Sequence[Allowed], stop: StopTable
) -> Allowed:
    """Behind a dead end: the slot ends if it may, and is bound no longer."""
    if place + 1 < len(allowed):
        return allowed[-1]
    state = 0
    for token in written:
        state = int(stop.next_state[state, token])
    ends = allowed[-1] & (stop.next_state[state] == DONE)
    return ends if ends.any() else allowed[-1]


def copied_of(compiled: CompiledSchema, texts: Sequence[str]) -> list[Copied]:
    """Of every slot of these documents, in order."""
    name, codec, width = compiled.format.name, compiled.codec, compiled.num_slots
    return [Copied(text.strip(), name, codec) for text in texts for _ in range(width)]
