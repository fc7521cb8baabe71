"""Turns annotated products into work: documents, and annotated values as answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemax.compiler import CompiledSchema, compile_schema
from schemax.evaluation.benchmark.workload import Category, Ids, Listing, Workload
from schemax.evaluation.examples import Example, canonical, read_examples
from schemax.evaluation.labelled_schemas import annotated_schemas


def read_rows(path: Path, count: int | None = None) -> list[Example]:
    """Reads annotated products of a JSONL file, evenly spread over it, category by category.

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
    """Makes work: every attribute of a product's category is a slot, null if it is not annotated.

    examples: category by category.
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
    """The category, with the compiler's budgets, widened for longer annotated values."""
    longest = [max(map(len, slot)) for slot in zip(*(x.answers for x in listings), strict=True)]
    return Category(
        instruction=compiled.instruction,
        opening=compiled.opening,
        keys=compiled.keys[0],
        k_max=tuple(map(max, compiled.k_max, longest)),
    )


def _answers(example: Example, compiled: CompiledSchema, eos_id: int) -> tuple[Ids, ...]:
    """The answers, each up to the token that completes the stop rule, else ended by an EOS id."""
    found = []
    for attribute in compiled.attributes:
        value = canonical(example.attributes.get(attribute.label))
        ids = compiled.codec.encode(compiled.format.escape(value) + compiled.format.delimiter)
        length = compiled.stop.length(ids)
        found.append((*ids, eos_id) if length is None else tuple(ids[:length]))
    return tuple(found)
