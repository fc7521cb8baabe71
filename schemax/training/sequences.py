"""Training sequences: prompts with their values filled in, as decoding would see them.

A training sequence is the prompt's plan with the value tokens appended, each with the position id,
document, slot and step that it has in decoding. Visibility depends on these four integers alone,
so that the mask of the paper's figure 3(b) equals the mask of figure 3(a).
A value is encoded together with the text behind it, since tokenizers merge the two; it ends with
the token that completes the stop rule, as decoded values do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from schemax.compiler import CompiledSchema
from schemax.compiler.waves import KnownSlot
from schemax.formats import DocumentKey
from schemax.runtime.attention.visibility import TokenInfo
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.plan import plan_prompt, with_values
from schemax.tokens import Ids, PromptIds

IGNORE = -100

# The integers that determine visibility, and their values for padding.
_INFO = {"position_ids": 0, "document": -1, "slot": -1, "step": 0}


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSequence:
    """A prompt with its values; all (L,) int64. labels: `IGNORE` for tokens that are not learnt."""

    input_ids: Ints
    position_ids: Ints
    document: Ints
    slot: Ints
    step: Ints
    labels: Ints

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True)
class ItemTarget:
    """The slot of an item of a list, or of a leaf of an item, with its value.

    attribute_index: of the list.
    key, values: token ids.
    k_max: the slot's budget.
    """

    attribute_index: int
    key: Ids
    values: Ids
    k_max: int


def training_sequence(
    compiled: CompiledSchema,
    prompt: PromptIds,
    values: Sequence[Sequence[int]],
    learnt: Sequence[bool | Sequence[bool]] | None = None,
    items: Sequence[Sequence[ItemTarget]] = (),
) -> TrainingSequence:
    """Appends each slot's value to the prompt.

    values: the ids of each slot, in the order of slot ids, as `value_ids` returns them.
    learnt: a flag per slot, or per token of its value; tokens without the flag are no labels.
    items: (J) the slots of items of each document, learnt if their list is; only for isolated
        documents in the layout `branched`. They begin right behind the output's opening.
    """
    plan = plan_prompt(prompt, compiled.decoding)
    targets = [np.asarray(ids, np.int64) for ids in values]
    if learnt is not None:
        pairs = zip(targets, learnt, strict=True)
        targets = [np.where(np.asarray(wanted), ids, IGNORE) for ids, wanted in pairs]
    labels = np.full(len(plan.input_ids), IGNORE)
    labels[plan.last_index] = [ids[0] for ids in targets]
    # The token that completes the stop rule is a label, never an input.
    filled = with_values(plan, [ids[:-1] for ids in values])
    columns = {name: getattr(filled, name) for name in ("input_ids", *_INFO)}
    columns["labels"] = np.concatenate([labels, *(ids[1:] for ids in targets)])
    parts = {name: [column] for name, column in columns.items()}
    called_for = [(j, item) for j, row in enumerate(items) for item in row]
    for number, (j, item) in enumerate(called_for):
        first, length = j * len(prompt.k_max), len(item.key)
        # The document's first key begins right behind the opening.
        start = int(plan.last_position[first]) - len(prompt.keys[j][0]) + 1
        ids = [*item.key, *item.values[:-1]]
        is_learnt = learnt is None or np.all(learnt[first + item.attribute_index])
        wanted = list(item.values) if is_learnt else [IGNORE] * len(item.values)
        added = {
            "input_ids": ids,
            "position_ids": range(start, start + len(ids)),
            "document": [j] * len(ids),
            "slot": [len(plan.slot_ids) + number] * len(ids),
            "step": [0] * length + list(range(1, len(item.values))),
            "labels": [IGNORE] * (length - 1) + wanted,
        }
        for name, run in added.items():
            parts[name].append(np.asarray(run, np.int64))
    return TrainingSequence(**{name: np.concatenate(runs) for name, runs in parts.items()})


def value_ids(text: str, compiled: CompiledSchema, k_max: int) -> tuple[int, ...]:
    """Returns a value's ids as decoding should write them: up to the completed stop rule.

    text: the escaped value and the text behind it. Longer values are cut at the budget.
    """
    ids = compiled.codec.encode(text)
    length = compiled.stop.length(ids)
    # If a model has several end ids, the tokenizer's id ends its turns.
    ends = () if length is not None else (*compiled.codec.eos_ids, *compiled.stop.eos_ids)[:1]
    return (*ids[:length], *ends)[:k_max]


def collate(
    sequences: Sequence[TrainingSequence], pad_id: int, length: int = 0
) -> tuple[Tensor, TokenInfo, Tensor]:
    """Collates sequences: (B, L) input ids, token info and labels, right padded.

    length: the least L; the longest sequence may be longer.
    """

    def padded(name: str, fill: int) -> Tensor:
        rows = [torch.from_numpy(getattr(sequence, name)) for sequence in sequences]
        filled = pad_sequence(rows, batch_first=True, padding_value=fill)
        return functional.pad(filled, (0, max(0, length - filled.shape[1])), value=fill)

    input_ids = padded("input_ids", pad_id)
    lengths = torch.tensor(list(map(len, sequences)))
    columns = {name: padded(name, fill) for name, fill in _INFO.items()}
    tokens = TokenInfo(**columns, real=torch.arange(input_ids.shape[1]) < lengths[:, None])
    return input_ids, tokens, padded("labels", IGNORE)


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
        for text, is_learnt, following, k_max in zip(
            row, wanted, after, compiled.k_max, strict=True
        ):
            ids = value_ids(text + following, compiled, k_max)
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
    # One output for all documents: the next document's first key follows a document's last value.
    firsts = [row[0] for row in rows[1:]]
    end = output.closing((DocumentKey(str(num_documents)), *paths[-1]))
    return [[*row[1:], first] for row, first in zip(rows, [*firsts, end], strict=True)]


def _behind_branch(compiled: CompiledSchema, path: Sequence[str]) -> str:
    output = compiled.format
    # XML's delimiter begins a closing tag; an unconstrained slot ends with the rest of its line.
    short = compiled.decoding.ends_with_line and "\n" not in output.delimiter
    return output.closing(tuple(path)) if short else output.delimiter


def item_target(compiled: CompiledSchema, slot: KnownSlot) -> ItemTarget:
    """Returns the target of an item's slot."""
    text = slot.raw + _behind_branch(compiled, slot.attribute.labels)
    values = value_ids(text, compiled, slot.k_max)
    return ItemTarget(slot.attribute_index, slot.key, values, slot.k_max)


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
