"""The work of a benchmark: token ids to read, and the answers that every engine has to write.

With given answers (replay), all engines do the same work whatever the weights, so that random
weights of a published shape measure as well as trained ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from schemax.base.messages import counted
from schemax.compiler import CompiledSchema, compile_schema
from schemax.evaluation.examples import Example, canonical_value, read_examples
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.tokens import Ids, PromptIds, StopTable

Writes = Literal["values", "output", "nothing"]


@dataclass(frozen=True, slots=True)
class Category:
    """A category: all that its documents have in common.

    instruction: I, before the document.
    opening: S, between the document and the output.
    keys: (N,) segments, each right before its value.
    k_max: (N,) token budgets.
    """

    instruction: Ids
    opening: Ids
    keys: tuple[Ids, ...]
    k_max: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """A document and its (N,) answers, completing tokens included."""

    category: int
    ids: Ids
    answers: tuple[Ids, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """A stream of documents, category by category.

    stop: ends a value.
    eos_id: ends an output that an engine writes key by key; answers hold it nowhere else.
    facts: the source of the work, for the report.
    token_bytes: the bytes of every token, if the tokens are those of a text.
    """

    categories: tuple[Category, ...]
    listings: tuple[Listing, ...]
    stop: StopTable
    eos_id: int
    vocab_size: int
    facts: dict[str, Any]
    token_bytes: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.listings)

    @property
    def end(self) -> StopTable:
        """The stop rule of autoregressive outputs, which the EOS id alone ends."""
        return StopTable(np.zeros((1, self.vocab_size), np.int8), (self.eos_id,))

    def part(self, count: int) -> Workload:
        """Returns the work of `count` documents, evenly spread over the stream."""
        total = len(self.listings)
        if count >= total:
            return self
        chosen = tuple(self.listings[place * total // count] for place in range(count))
        return replace(self, listings=chosen)

    def output(self, listing: Listing) -> Ids:
        """Returns the output of an autoregressive engine: every key, its value, and the EOS id."""
        keys = self.categories[listing.category].keys
        pairs = zip(keys, listing.answers, strict=True)
        return (*(i for key, answer in pairs for i in (*key, *answer)), self.eos_id)

    def joined_output(self, listings: Sequence[Listing]) -> Ids:
        """Returns an autoregressive engine's output for several documents of a prompt."""
        return (*(i for listing in listings for i in self.output(listing)[:-1]), self.eos_id)

    def parted_output(self, ids: Ids, listings: Sequence[Listing]) -> list[Ids]:
        """Splits a joined output into the outputs of single documents, each with the EOS id."""
        outputs, at = [], 0
        for listing in listings:
            length = len(self.output(listing)) - 1
            outputs.append((*ids[at : at + length], *ids[-1:]))
            at += length
        return outputs

    def groups(self, documents_per_prompt: int) -> list[list[Listing]]:
        """Returns groups of neighbours of one category, up to `documents_per_prompt` each."""
        groups = []
        for _, group in groupby(self.listings, key=lambda listing: listing.category):
            members = list(group)
            starts = range(0, len(members), documents_per_prompt)
            groups += [members[at : at + documents_per_prompt] for at in starts]
        return groups

    def stem(self, *listings: Listing) -> Ids:
        """Returns I D S: the ids before the output of one or several documents of a category."""
        category = self.categories[listings[0].category]
        documents = (i for listing in listings for i in listing.ids)
        return (*category.instruction, *documents, *category.opening)

    def expected(self, writes: Writes) -> list[tuple[Ids, ...]]:
        """Returns the tokens to write per document: N values, or one whole output."""
        if writes == "output":
            return [(self.output(listing),) for listing in self.listings]
        return [listing.answers for listing in self.listings] if writes == "values" else []

    def prompts(self, documents_per_prompt: int = 1) -> list[PromptIds]:
        """Returns prompts with slots for up to J documents of one category, and their answers."""
        prompts = []
        for group in self.groups(documents_per_prompt):
            category = self.categories[group[0].category]
            prompt = PromptIds(
                instruction=category.instruction,
                documents=tuple(listing.ids for listing in group),
                opening=category.opening,
                keys=(category.keys,) * len(group),
                k_max=category.k_max,
                sampling_keys=(0,) * len(group),
                answers=tuple(listing.answers for listing in group),
            )
            prompts.append(prompt)
        return prompts

    def autoregressive_prompts(self, documents_per_prompt: int = 1) -> list[PromptIds]:
        """Returns prompts whose only slot is the whole output of their documents."""
        groups = self.groups(documents_per_prompt)
        pairs = zip(self.prompts(documents_per_prompt), groups, strict=True)
        return [
            replace(
                prompt,
                keys=(((),),),
                k_max=(len(group) * (sum(map(len, prompt.keys[0])) + sum(prompt.k_max)) + 1,),
                answers=((self.joined_output(group),),),
            )
            for prompt, group in pairs
        ]

    def used_categories(self) -> list[Category]:
        return [self.categories[n] for n in sorted({item.category for item in self.listings})]

    def counts(self) -> dict[str, int]:
        """Counts the tokens that every engine must process, and those of autoregressive outputs.

        instructions: once per category that occurs. documents, openings, keys: once per document.
        values: generated tokens that become an input; a value's completing token does not.
        head: positions that require logits, one per generated value token.
        outputs: tokens that an autoregressive engine generates: keys, values, end of the output.
        passed: the tokens of the floor, which wastes nothing.
        """
        owners = [self.categories[listing.category] for listing in self.listings]
        written = [len(answer) for listing in self.listings for answer in listing.answers]
        passed = {
            "instructions": sum(len(category.instruction) for category in self.used_categories()),
            "documents": sum(len(listing.ids) for listing in self.listings),
            "openings": sum(len(owner.opening) for owner in owners),
            "keys": sum(len(key) for owner in owners for key in owner.keys),
            "values": sum(written) - len(written),
        }
        outputs = passed["keys"] + sum(written) + len(self.listings)
        return passed | {
            "head": sum(written),
            "outputs": outputs,
            "passed": sum(passed.values()),
        }


def first_difference(
    expected: Sequence[tuple[Ids, ...]], emitted: Sequence[tuple[Ids, ...]]
) -> str:
    """Describes the first difference of two outputs; "" if there is none."""
    if len(expected) != len(emitted):
        return f"{counted(len(emitted), 'document')} instead of {len(expected)}"
    for place, (wanted, actual) in enumerate(zip(expected, emitted, strict=True)):
        if len(wanted) != len(actual):
            return f"document {place}: {len(actual)} runs of tokens instead of {len(wanted)}"
        for slot, (right, written) in enumerate(zip(wanted, actual, strict=True)):
            if tuple(written) != tuple(right):
                return (
                    f"document {place}, slot {slot}: {tuple(written)[:8]}... "
                    f"({len(written)} tokens) instead of {right[:8]}... ({len(right)})"
                )
    return ""


def read_rows(path: Path, count: int | None = None) -> list[Example]:
    """Reads documents of a JSONL file, evenly spread over it, ordered by category.

    Raises InputError, naming the line, for a malformed line.
    """
    examples = read_examples(path)
    if count is not None and count < len(examples):
        examples = [examples[place * len(examples) // count] for place in range(count)]
    return sorted(examples, key=lambda example: example.category)


def annotated_work(
    examples: Sequence[Example],
    tokenizer: Any,
    vocab_size: int,
    *,
    source: str = "",
) -> Workload:
    """Makes work: every attribute of a category is a slot, null if it is not annotated.

    examples: ordered by category.
    Raises ModelError for a tokenizer that does not fit the vocabulary.
    """
    compiled = {
        name: compile_schema(schema, tokenizer, vocab_size=vocab_size)
        for name, schema in annotated_schemas(examples).items()
    }
    names = list(compiled)
    first = compiled[names[0]]
    first.codec.check_vocabulary(vocab_size)
    eos_id = first.stop.eos_ids[0] if first.stop.eos_ids else vocab_size - 1
    encoded = {
        name: iter(item.encode([e.text for e in examples if e.category == name]))
        for name, item in compiled.items()
    }
    listings = []
    for example in examples:
        prompt = next(encoded[example.category])
        answers = _answers(example, compiled[example.category], eos_id)
        listings.append(Listing(names.index(example.category), prompt.documents[0], answers))
    return Workload(
        categories=tuple(
            _category(compiled[name], [item for item in listings if item.category == number])
            for number, name in enumerate(names)
        ),
        listings=tuple(listings),
        stop=first.stop,
        eos_id=eos_id,
        vocab_size=vocab_size,
        facts={
            "source": source or "annotated documents",
            "categories": len(names),
            "format": first.format.name,
            "stated_values": sum(len(e.attributes) for e in examples),
        },
        token_bytes=first.codec.token_bytes,
    )


def _category(compiled: CompiledSchema, listings: Sequence[Listing]) -> Category:
    """Returns the category, with the compiler's budgets, widened for longer annotated values."""
    longest = [max(map(len, slot)) for slot in zip(*(x.answers for x in listings), strict=True)]
    return Category(
        instruction=compiled.instruction,
        opening=compiled.opening,
        keys=compiled.keys[0],
        k_max=tuple(map(max, compiled.k_max, longest)),
    )


def _answers(example: Example, compiled: CompiledSchema, eos_id: int) -> tuple[Ids, ...]:
    """Returns the answers, each up to the token that completes the stop rule, or to an EOS id."""
    answers = []
    for attribute in compiled.attributes:
        value = canonical_value(example.attributes.get(attribute.label))
        ids = compiled.codec.encode(compiled.format.escape(value) + compiled.format.delimiter)
        length = compiled.stop.length(ids)
        answers.append((*ids, eos_id) if length is None else tuple(ids[:length]))
    return tuple(answers)
