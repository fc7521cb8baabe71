"""Targets: the token ids that every slot of a prompt should be filled with.

A value is encoded together with the text behind it, since tokenizers merge the two; it ends with
the token that completes the stop rule, as decoded values do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemax.compiler import CompiledSchema
from schemax.compiler.known import KnownSlot
from schemax.formats import DocumentKey
from schemax.runtime.slots.arrays import Ids
from schemax.training.sequences import ItemTarget, value_ids


def slot_targets(
    compiled: CompiledSchema,
    literals: Sequence[Sequence[str]],
    learnt: Sequence[Sequence[bool]],
) -> tuple[list[Ids], list[tuple[bool, ...]]]:
    """Returns the ids of every slot, in the order of slot ids; for each id, True if it is learnt.

    literals: (J, N) values as `OutputFormat.escape` writes them.
    learnt: (J, N) True for values to be learnt. In the autoregressive layout, where the one slot of
        a document holds its whole output, keys and punctuation are always learnt.
    """
    pairs = list(zip(literals, learnt, strict=True))
    if compiled.decoding.layout == "autoregressive":
        outputs = [_whole_output(compiled, row, wanted) for row, wanted in pairs]
        return [ids for ids, _ in outputs], [flags for _, flags in outputs]
    values, flags = [], []
    behind = following_texts(compiled, len(literals))
    for (row, wanted), after in zip(pairs, behind, strict=True):
        for text, is_learnt, rest, k_max in zip(row, wanted, after, compiled.k_max, strict=True):
            ids = value_ids(text + rest, compiled, k_max)
            values.append(ids)
            flags.append((is_learnt,) * len(ids))
    return values, flags


def following_texts(compiled: CompiledSchema, num_documents: int) -> list[list[str]]:
    """Returns (J, N) the texts behind every value in the output.

    In a branch, the delimiter; in a skeleton, the next key, and at the end the output's closing.
    """
    output, paths = compiled.format, [attribute.labels for attribute in compiled.attributes]
    if compiled.decoding.layout == "branched":
        return [[_behind_branch(compiled, path) for path in paths]] * num_documents
    if compiled.decoding.documents == "isolated":
        return [[*compiled.key_texts[0][1:], output.closing(paths[-1])]] * num_documents
    rows = compiled.key_texts[:num_documents]
    # One output for all documents: behind a document's last value comes the next one's first key.
    firsts = [row[0] for row in rows[1:]]
    end = output.closing((DocumentKey(str(num_documents)), *paths[-1]))
    return [[*row[1:], first] for row, first in zip(rows, [*firsts, end], strict=True)]


def _behind_branch(compiled: CompiledSchema, path: Sequence[str]) -> str:
    output = compiled.format
    # XML's delimiter begins a closing tag; a "newline" slot ends with the rest of its line.
    short = compiled.decoding.stop == "newline" and "\n" not in output.delimiter
    return output.closing(tuple(path)) if short else output.delimiter


def item_target(compiled: CompiledSchema, slot: KnownSlot) -> ItemTarget:
    """Returns the target of an item's slot."""
    text = slot.raw + _behind_branch(compiled, slot.asked.labels)
    values = value_ids(text, compiled, slot.k_max)
    return ItemTarget(slot.place, slot.key, values, slot.k_max)


def _whole_output(
    compiled: CompiledSchema, literals: Sequence[str], learnt: Sequence[bool]
) -> tuple[Ids, tuple[bool, ...]]:
    """Returns the ids of a whole output behind its opening; for each id, True if it is learnt."""
    parts = list(_parts(compiled, literals, learnt))
    ids = value_ids("".join(text for text, _ in parts), compiled, compiled.k_max[0])
    by_byte = [wanted for text, wanted in parts for _ in text.encode()]
    flags, at = [], 0
    for token in ids:
        length = len(compiled.codec.decode_bytes((token,)))
        flags.append(all(by_byte[at : at + length]))
        at += length
    return ids, tuple(flags)


def _parts(
    compiled: CompiledSchema, literals: Sequence[str], learnt: Sequence[bool]
) -> Iterator[tuple[str, bool]]:
    previous = None
    for attribute, text, wanted in zip(compiled.attributes, literals, learnt, strict=True):
        yield compiled.format.key(attribute.labels, previous), True
        yield text, wanted
        previous = attribute.labels
    assert previous is not None  # a schema without attributes does not compile
    yield compiled.format.closing(previous), True
