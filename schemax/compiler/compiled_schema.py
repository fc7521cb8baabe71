"""`CompiledSchema`: makes prompts of documents, and texts of the tokens that slots write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from schemax.attributes import Attribute
from schemax.compiler.automata import text_before_stop
from schemax.compiler.extractive import DocumentSource
from schemax.compiler.nearest import NearestExamples
from schemax.compiler.prompt import PromptText, clean_document
from schemax.compiler.slot_specs import Fields
from schemax.compiler.tokenizer import TextCodec
from schemax.compiler.waves import KnownSlot, Waves, known_slots
from schemax.config import DecodingConfig
from schemax.formats import OutputFormat, StopRule
from schemax.tokens import Ids, PromptIds, SlotSpec, StopTable


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CompiledSchema:
    """A schema compiled for one tokenizer. Immutable: compile once, run many.

    prompt: the prompt's text, cut at the documents.
    instruction, opening: the ids of I and S.
    pieces: the ids of `prompt.pieces`.
    keys: (J, N) key segments; (1, N) for isolated documents, which all have the same.
    key_texts: the same as text.
    k_max: (N,) token budgets, delimiter included. For the autoregressive layout (1,): the budget
        of one document's whole output.
    slot_attributes: (N,) the attributes that slots ask for; a list in two phases is asked for its
        count.
    slots: (N,) specs: grammars, how null begins, follow-ups. () for the autoregressive layout,
        but for chats one spec with the schema of the output.
    stop, stop_rule: what ends a slot, over tokens and over bytes.
    odd_boundaries: attributes whose key ends within a token of the filled text.
    waves: the slots that are filled once other slots are, or once more; None where all slots are
        filled at once. `keys` are as if no field looked at other fields.
    nearest: chooses the examples that a document is shown; None where every document is shown all.
    fields: the fields, and those of items, side by side; None for the autoregressive layout.
    """

    schema: type[Any]
    category: str
    attributes: tuple[Attribute, ...]
    slot_attributes: tuple[Attribute, ...]
    format: OutputFormat
    decoding: DecodingConfig
    codec: TextCodec
    prompt: PromptText
    instruction: Ids
    opening: Ids
    pieces: tuple[tuple[Ids, ...], ...]
    keys: tuple[tuple[Ids, ...], ...]
    key_texts: tuple[tuple[str, ...], ...]
    k_max: tuple[int, ...]
    slots: tuple[SlotSpec, ...]
    stop: StopTable
    stop_rule: StopRule
    odd_boundaries: tuple[str, ...]
    waves: Waves | None = None
    nearest: NearestExamples | None = None
    fields: Fields | None = None

    @property
    def num_slots(self) -> int:
        """Slots per document: N, or 1 where the model writes the whole output itself."""
        return len(self.keys[0])

    def encode(self, texts: Sequence[str]) -> list[PromptIds]:
        """Makes prompts in order: of up to J stacked documents each, or of one isolated document.

        Raises InputError for a text that the tokenizer fails on.
        """
        stacked = self.decoding.documents == "stacked"
        stride = self.decoding.documents_per_prompt if stacked else 1
        cleaned = [clean_document(text, self.prompt.fence) for text in texts]
        behind = None if self.pieces[0][0] else self.instruction
        encoded = [tuple(ids) for ids in self.codec.encode_batch(cleaned, behind)]
        if (nearest := self.nearest) is not None:
            return [
                replace(self.assemble([ids]), demonstrations=nearest.of(text))
                for ids, text in zip(encoded, cleaned, strict=True)
            ]
        return [self.assemble(encoded[at : at + stride]) for at in range(0, len(encoded), stride)]

    def decode_slot(self, ids: Sequence[int]) -> tuple[str, bool]:
        """The text of a slot without its delimiter, and whether the stop rule was met."""
        return text_before_stop(self.stop_rule, self.codec, tuple(ids))

    def assemble(
        self, documents: Sequence[Ids], keys: Sequence[tuple[Ids, ...]] | None = None
    ) -> PromptIds:
        """Assembles a prompt of up to J documents that are already token ids.

        keys: (J, N) where fields look at other fields and values are known, see `known`: all fields
            are asked at once.
        """
        stacked = self.decoding.documents == "stacked"
        elements = []
        for j, ids in enumerate(documents):
            first, *literals = self.pieces[j if stacked else 0]
            element = list(first)
            for literal in literals:
                element += [*ids, *literal]
            elements.append(tuple(element))
        count = len(documents)
        is_slotted = self.decoding.layout != "autoregressive"
        prompt = PromptIds(
            instruction=self.instruction,
            documents=tuple(elements),
            opening=self.opening,
            keys=self.keys[:count] if stacked else self.keys * count,
            k_max=self.k_max if is_slotted else tuple(count * budget for budget in self.k_max),
            sampling_keys=tuple(_digest(ids) for ids in documents),
            slots=self.slots,
            sources=tuple(DocumentSource(ids, self.codec) for ids in documents)
            if is_slotted
            else (),
        )
        if self.waves is None:
            return prompt
        if keys is not None:
            return replace(prompt, keys=tuple(keys))
        opened, k_max, slots = self.waves.opened
        return replace(
            prompt,
            keys=opened * count,
            k_max=k_max,
            slots=slots,
            numbers=self.waves.fields.first,
            waves=self.waves,
        )

    def asked_alone(self, places: Sequence[int]) -> tuple[int, ...] | None:
        """The places, if fields asked for alone have the answers that they have beside all others.

        None where a document is asked for all fields: in layouts whose slots see other slots, for
        fields that look at others, for second chances, and where a server takes whole schemas.
        """
        is_free = self.decoding.is_branched and self.decoding.slots == "independent"
        is_served_whole = any(spec.json_schema is not None for spec in self.slots)
        return tuple(places) if is_free and not is_served_whole and self.waves is None else None

    def asking(self, prompt: PromptIds, places: Sequence[int]) -> PromptIds:
        """The prompt of an isolated document that asks for some fields alone; see `asked_alone`."""
        if (alone := self.asked_alone(places)) is None:
            return prompt
        (keys,) = prompt.keys
        return replace(
            prompt,
            keys=(tuple(keys[n] for n in alone),),
            k_max=tuple(prompt.k_max[n] for n in alone),
            slots=tuple(prompt.slots[n] for n in alone),
            numbers=alone,
        )

    def known(self, slots: Sequence[Any]) -> Iterator[KnownSlot]:
        """Yields all slots of a document, those of items included, with their keys.

        slots: (N,) `SlotText`s of results. For isolated documents in the layout `branched` alone.
        """
        assert self.fields is not None
        return known_slots(self.fields, slots, self.format, self.codec)


def _digest(ids: Ids) -> int:
    data = np.array(ids, "<u4").tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1
