"""Generated listings of exact token lengths, made of random ordinary token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from schemax.evaluation.benchmark.workload import Category, Listing, Workload
from schemax.tokens import DONE, Ids, StopTable

# Counts of stated values by tokens in the test split of OA-Mine, written as JSON with Qwen2's
# tokenizer: the opening quote, the value, and the token that completes it. Mean 5.4.
VALUE_LENGTHS: Mapping[int, int] = {
    3: 246, 4: 655, 5: 601, 6: 448, 7: 244, 8: 108, 9: 60, 10: 37, 11: 15, 12: 18, 13: 6, 14: 5,
    16: 3, 18: 2, 20: 2, 25: 1,
}  # fmt: skip

_EOS, _DELIMITER, _FIRST = 1, 2, 16
_OPENING_TOKENS = 8
_K_MAX = 30  # the paper's


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the listings, in tokens.

    jitter: the share by which lengths of documents vary at most, evenly; 0 makes all alike.
    Raises ValueError for sizes that allow no listing.
    """

    documents: int = 64
    document_tokens: int = 250
    attributes: int = 16
    key_tokens: int = 4
    instruction_tokens: int = 250
    jitter: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        # Values are copied from documents, which takes two tokens.
        least = {"documents": 1, "document_tokens": 2, "attributes": 1, "key_tokens": 1}
        for name, fewest in {**least, "instruction_tokens": 1}.items():
            if getattr(self, name) < fewest:
                raise ValueError(f"{name} must be {fewest} or more, not {getattr(self, name)}")
        if not 0 <= self.jitter <= 0.5:
            raise ValueError(f"jitter must lie between 0 and 0.5, not {self.jitter}")


def generate_work(
    sizes: Sizes, vocab_size: int, lengths: Mapping[int, int] = VALUE_LENGTHS
) -> Workload:
    """Generates work; the same arguments give the same work.

    A value is a span of its document, as extracted values are; the instruction names the keys.
    Otherwise drafts that copy from the prompt would have nothing to copy.

    lengths: counts of values by tokens, completing token included.
    Raises ValueError for too small a vocabulary.
    """
    if vocab_size < 4 * _FIRST:
        raise ValueError(f"a vocabulary of {vocab_size} tokens is too small to draw listings from")
    random = np.random.default_rng(sizes.seed)

    def draw(count: int) -> Ids:
        # Special tokens are at either end of a vocabulary.
        return tuple(random.integers(_FIRST, int(0.95 * vocab_size), count).tolist())

    keys = tuple(draw(sizes.key_tokens) for _ in range(sizes.attributes))
    named = [i for key in keys for i in key][: sizes.instruction_tokens]
    instruction = (*draw(sizes.instruction_tokens - len(named)), *named)
    choices = np.array(sorted(lengths))
    shares = np.array([lengths[length] for length in choices], float)
    spread = round(sizes.jitter * sizes.document_tokens)
    listings = []
    for _ in range(sizes.documents):
        ids = draw(max(2, sizes.document_tokens + int(random.integers(-spread, spread + 1))))
        drawn = random.choice(choices, sizes.attributes, p=shares / shares.sum())
        answers = tuple(_value(ids, int(length), random) for length in drawn)
        listings.append(Listing(0, ids, answers))
    longest = max(len(answer) for listing in listings for answer in listing.answers)
    category = Category(
        instruction=instruction,
        opening=draw(_OPENING_TOKENS),
        keys=keys,
        k_max=(max(_K_MAX, longest),) * sizes.attributes,
    )
    table = np.zeros((1, vocab_size), np.int8)
    table[0, _DELIMITER] = DONE
    return Workload(
        categories=(category,),
        listings=tuple(listings),
        stop=StopTable(table, ()),
        eos_id=_EOS,
        vocab_size=vocab_size,
        facts={"source": "generated", "opening_tokens": _OPENING_TOKENS, **asdict(sizes)},
    )


def value_lengths(work: Workload) -> Mapping[int, int]:
    """Counts stated values by their tokens, the completing token included."""
    lengths = Counter(len(a) for listing in work.listings for a in listing.answers if len(a) > 1)
    return lengths or Counter({2: 1})


def _value(document: Ids, length: int, random: np.random.Generator) -> Ids:
    copied = min(max(1, length - 1), len(document))
    start = int(random.integers(0, len(document) - copied + 1))
    return (*document[start : start + copied], _DELIMITER)
