"""A request: one prompt whose slots are filled together, laid out and ready for the scheduler.

An isolated document has a request of its own; stacked documents share a request. A `SlotLayout`
holds the keys, budgets and grammars that all documents of a category share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from schemax.config import SKELETONS, WITHOUT_SKELETON, DecodingConfig
from schemax.runtime.slots.arrays import Ints, ranks
from schemax.runtime.slots.outputs import DocumentOutput, Watcher
from schemax.tokens import (
    ChildSlot,
    CopySource,
    Ids,
    PromptIds,
    SlotOutput,
    SlotSpec,
    StopTable,
    Waves,
)

# A shorter instruction is read with every document: attending to it apart would cost more.
_SHORTEST_PREFIX = 16
_FREE = SlotSpec()


def seeded_digest(digest: int, seed: int) -> int:
    """A document's digest and a seed as the signed 64 bits that random numbers depend on."""
    mixed = (digest ^ seed * 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
    return mixed - (1 << 64) if mixed >> 63 else mixed


@dataclass(frozen=True, slots=True, eq=False)
class SlotLayout:
    """N slots (J * N for stacked documents), by distance from the end of the output's opening.

    skeleton, skeleton_positions: keys that all slots read, in the layout `gapped`.
    suffix, suffix_positions: the slots' own keys, one after the other.
    suffix_lengths: (N,) the length of each slot's own key.
    keys: (N,) the slots' own keys, slot by slot.
    visible: (N,) how many tokens of the skeleton a slot sees.
    last_position: (N,) the token before the value's first; -1 is the opening's last token.
    budgets: (N,) tokens, delimiter included.
    numbers: (N,) keys of random numbers.
    owners: (N,) each slot's document.
    specs: (N,) the slots' specs.
    null_ids: (N,) see `SlotSpec`.
    extent: the most position ids that the slots need, without retries.
    """

    skeleton: Ints
    skeleton_positions: Ints
    suffix: Ints
    suffix_positions: Ints
    suffix_lengths: Ints
    keys: tuple[Ids, ...]
    visible: Ints
    last_position: Ints
    budgets: Ints
    numbers: Ints
    owners: Ints
    specs: tuple[SlotSpec, ...]
    null_ids: Ints
    extent: int

    @property
    def num_slots(self) -> int:
        return len(self.budgets)


@dataclass(slots=True, eq=False)
class Request:
    """J documents and their slots: D stem tokens that all slots read, behind a shared prefix.

    prefix: the instruction, from position 0 on; () if it is too short to be shared.
    demonstrations: examples between the prefix and the stem. Each begins at the prefix's end and
        sees only itself and the prefix. The stem begins at the end of the longest.
    stem, stem_positions: (D,) documents, the output's opening, and the skeleton if there is one.
    layout: the layout of the slots.
    first_position: the position of the layout, right behind the opening.
    budgets: (N,) tokens, retries included.
    digests: (J,) digests of the documents and the seed, for random numbers; see `seeded_digest`.
    decoding: the settings that the request is decoded with.
    stop: the stop rule of the slots.
    answers: (N,) given tokens, or None.
    places: the inputs that have this output, by their first document's place: documents with equal
        tokens are read once.
    retries, bound: the retries and the context of slots that follow; see `with_retries`.
    waves: the slots that follow once these slots are filled.
    sources: (J,) see `PromptIds`.
    num_document_tokens: (J,) the tokens of the documents alone.
    watcher: learns what passes write; None for nobody.
    """

    prefix: Ids
    stem: Ints
    stem_positions: Ints
    layout: SlotLayout
    first_position: int
    budgets: Ints
    digests: tuple[int, ...]
    decoding: DecodingConfig
    stop: StopTable
    answers: tuple[Ids, ...] | None
    places: list[int]
    retries: int = 0
    bound: int | None = None
    waves: Waves | None = None
    sources: tuple[CopySource, ...] = ()
    num_document_tokens: tuple[int, ...] = field(default=(), repr=False)
    watcher: Watcher | None = None
    demonstrations: tuple[Ids, ...] = ()

    @property
    def sampling(self) -> dict[str, float]:
        """The settings by which tokens are chosen, by column of the slot table."""
        config = self.decoding
        return {
            "temperature": config.temperature,
            "top_p": config.top_p,
            "is_calibrated": bool(config.contextual_calibration),
        }

    @property
    def is_causal(self) -> bool:
        """True if each slot sees the values of the slots before it."""
        return self.decoding.slots == "causal"

    @property
    def num_documents(self) -> int:
        return len(self.digests)

    @property
    def num_slots(self) -> int:
        return self.layout.num_slots

    @property
    def num_tokens(self) -> int:
        """Counts the tokens that are read before the first one is written, without the prefix."""
        return len(self.stem) + len(self.layout.suffix)

    @property
    def footprint(self) -> int:
        """An estimate of the tokens kept: few values come near their budgets."""
        return self.num_tokens + int(self.budgets.sum()) // 4

    @property
    def max_position(self) -> int:
        """The largest position id that can occur, retries apart."""
        extent = 0 if self.waves is None else self.waves.extent
        return self.first_position + max(self.layout.extent, extent) - 1

    @property
    def slot_sources(self) -> tuple[CopySource, ...]:
        """(S,) the document of each slot; () if no slot copies."""
        if len(self.sources) < 2:
            return self.sources * self.num_slots
        return tuple(self.sources[owner] for owner in self.layout.owners.tolist())

    def next_wave(self, outputs: tuple[SlotOutput, ...]) -> tuple[ChildSlot, ...]:
        """The slots of the next wave, once all slots so far are filled."""
        if self.waves is None:
            return ()
        room = None if self.bound is None else self.bound - self.first_position
        return self.waves.next_wave(outputs, room)

    def final_outputs(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        """The (N,) outputs of the request, from the outputs of all waves."""
        return outputs if self.waves is None else self.waves.final_outputs(outputs)


def new_request(
    prompt: PromptIds, stop: StopTable, config: DecodingConfig, place: int = 0
) -> Request:
    """Lays out a prompt of one isolated document, or of J stacked ones.

    place: the first document's place in the input. Budgets are without retries.
    """
    assert config.documents == "stacked" or len(prompt.documents) == 1
    layout = slot_layout(
        prompt.keys, prompt.k_max, config.layout, prompt.slots, prompt.numbers, len(prompt.keys)
    )
    demonstrations = prompt.demonstrations
    shared = len(prompt.instruction) > _SHORTEST_PREFIX or bool(demonstrations)
    prefix, own = (prompt.instruction, ()) if shared else ((), prompt.instruction)
    parts: list[Ids] = [own, *prompt.documents, prompt.opening]
    count = sum(map(len, parts))
    stem = np.empty(count + len(layout.skeleton), np.int64)
    stem[:count] = [token for part in parts for token in part]
    stem[count:] = layout.skeleton
    start = len(prefix) + max(map(len, demonstrations), default=0)
    first = start + count
    positions = np.arange(start, start + len(stem))
    if len(layout.skeleton):
        positions[count:] = layout.skeleton_positions + first
    answers = None
    if prompt.answers is not None:
        answers = tuple(answer for row in prompt.answers for answer in row)
    return Request(
        prefix=prefix,
        stem=stem,
        stem_positions=positions,
        layout=layout,
        first_position=first,
        budgets=layout.budgets,
        digests=tuple(seeded_digest(digest, config.seed) for digest in prompt.sampling_keys),
        decoding=config,
        stop=stop,
        answers=answers,
        places=[place],
        waves=prompt.waves,
        sources=prompt.sources,
        num_document_tokens=tuple(map(len, prompt.documents)),
        demonstrations=demonstrations,
    )


@lru_cache(maxsize=1024)
def slot_layout(
    keys: tuple[tuple[Ids, ...], ...],
    k_max: tuple[int, ...],
    layout: str,
    specs: tuple[SlotSpec, ...],
    numbers: tuple[int, ...],
    num_documents: int,
) -> SlotLayout:
    """Lays out the keys of J documents, (J, N); `autoregressive` has one slot for all documents."""
    if layout == "autoregressive":
        keys, num_documents = (((),),), 1
    width = len(k_max)
    flat = tuple(key for row in keys for key in row)
    budgets = np.tile(np.array(k_max, np.int64), num_documents)
    lengths = np.array([len(key) for key in flat], np.int64)
    is_branched = layout == "branched"
    # Branches begin at the same place; in a skeleton, keys and gaps follow one another.
    ends = lengths.cumsum()
    starts = np.zeros_like(lengths)
    if layout not in WITHOUT_SKELETON:
        starts = _key_starts(layout, lengths, budgets)
    token_ids = np.array([token for key in flat for token in key], np.int64)
    positions = np.repeat(starts, lengths) + ranks(lengths)
    last_position = starts + lengths - 1
    slot_specs = (specs or (_FREE,) * width) * num_documents
    # A value's last token is never an input, so that it needs no position.
    extents = [int((last_position + budgets).max())]
    extents += [
        int(start) - 1 + spec.follow_ups.extent
        for spec, start in zip(slot_specs, starts, strict=True)
        if spec.follow_ups is not None
    ]
    none = np.zeros(0, np.int64)
    return SlotLayout(
        skeleton=none if is_branched else token_ids,
        skeleton_positions=none if is_branched else positions,
        suffix=token_ids if is_branched else none,
        suffix_positions=positions if is_branched else none,
        suffix_lengths=lengths if is_branched else np.zeros_like(lengths),
        keys=flat if is_branched else ((),) * len(flat),
        visible=np.zeros_like(lengths) if is_branched else ends,
        last_position=last_position,
        budgets=budgets,
        numbers=np.tile(np.array(numbers or range(width), np.int64), num_documents),
        owners=np.repeat(np.arange(num_documents), width),
        specs=slot_specs,
        null_ids=np.array([spec.null_id for spec in slot_specs], np.int64),
        extent=max(extents),
    )


def _key_starts(layout: str, lengths: Ints, budgets: Ints) -> Ints:
    """(S,) position ids of the first tokens of a skeleton's keys; see `register_layout`."""
    if layout not in SKELETONS:
        raise ValueError(f"the layout {layout!r} is not registered in this process")
    starts = np.asarray(SKELETONS[layout](lengths, budgets))
    if starts.shape != lengths.shape or starts.dtype.kind != "i":
        raise ValueError(
            f"the layout {layout!r} must give {len(lengths)} integers, one a key, not {starts!r}"
        )
    least = np.concatenate([[0], (starts + lengths + budgets)[:-1]])
    if len(early := np.flatnonzero(starts < least)):
        first = int(early[0])
        raise ValueError(
            f"the layout {layout!r} begins key {first} at {starts[first]}, and the key before it "
            f"with its gap ends at {least[first]}"
        )
    return starts.astype(np.int64)


Filled = tuple[Request, tuple[SlotOutput, ...] | DocumentOutput]
"""A finished request: its slot outputs, or the output of each of its documents if it failed."""


def with_retries(budgets: Ints, last_position: Ints, retries: int, bound: int | None) -> Ints:
    """(S,) budgets, twice as large for each retry as long as positions stay below the bound.

    A slot that runs out of its budget goes on in place. This equals decoding the slot once more,
    since a slot sees nothing new but its own tokens.

    last_position: (S,) position id of the token before the first of each value.
    """
    for _ in range(retries):
        furthest = last_position + 2 * budgets - 1
        fits = np.full(len(budgets), True) if bound is None else furthest < bound
        budgets = np.where(fits, 2 * budgets, budgets)
    return budgets
