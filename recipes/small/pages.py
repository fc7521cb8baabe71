"""Batches of pages for a chat model: longer pages, demonstrations, with or without turns."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import jinja2

from recipes.embedded.items import without_items
from recipes.embedded.mixture import Reader, full_batches, replace_texts
from recipes.embedded.prompts import ALONE, FORMATS, NoisyTokenizer, Page, written
from schemax.compiler import TextCodec
from schemax.compiler.prompt import load_template
from schemax.config import PRESETS, DecodingConfig
from schemax.training.sequences import TrainingSequence

AUTOREGRESSIVE = replace(PRESETS["autoregressive"], constrain="nothing")
# Templates with their shares.
TEMPLATES: Mapping[str, float] = {"verbatim": 0.5, "generic": 0.3, "standard": 0.15, "paper": 0.05}
# The most tokens of a page's texts, and of one text.
_MOST, _LONGEST = 900, 560


@dataclass(frozen=True, slots=True)
class Asking:
    """The shares of kinds of prompts.

    shown: pages with demonstrations. plain: pages without the model's chat template.
    autoregressive: pages whose whole output is one slot. cut: texts that are encoded with a tenth
        of the merges skipped at random.
    """

    shown: float = 0.33
    plain: float = 0.2
    autoregressive: float = 0.04
    cut: float = 0.1


class Asker:
    """A sampler of training sequences from the pages of a reader."""

    def __init__(self, reader: Reader, codec: TextCodec, asking: Asking) -> None:
        self._reader, self.asking = reader, asking
        self._chat, self._plain = codec, copy.copy(codec)
        self._plain.chat_template = None
        self._noisy = NoisyTokenizer(codec, 0.1)
        self._templates: dict[str, jinja2.Template] = {
            name: load_template(name) for name in TEMPLATES
        }

    def draw(self, layout: DecodingConfig, rng: random.Random) -> TrainingSequence:
        """Draws a page behind an instruction."""
        asking = self.asking
        codec = self._plain if rng.random() < asking.plain else self._chat
        shown = rng.choice((1, 1, 2, 3, 4)) if rng.random() < asking.shown else 0
        count = rng.choice((4, 5, 6, 8)) if layout == ALONE else 2
        name = rng.choices([*TEMPLATES], [*TEMPLATES.values()])[0]
        encode = self._noisy.encode if rng.random() < asking.cut else codec.encode
        page = self._page(shown, count, layout, rng)
        return written(
            page,
            codec,
            encode,
            format=rng.choice(FORMATS),
            template=self._templates[name],
            layout=layout,
            shown=shown,
        )

    def _page(self, shown: int, count: int, layout: DecodingConfig, rng: random.Random) -> Page:
        while True:
            page = self._reader.page(shown + count, rng)
            if layout != ALONE:
                page = without_items(page)
            lengths = [len(self._chat.encode(text)) for text in page.texts]
            if max(lengths) > _LONGEST or sum(lengths[: shown + 1]) > _MOST:
                continue
            while sum(lengths) > _MOST:
                lengths.pop()
            page = replace_texts(page, len(lengths))
            if any(any(question.learnt[shown:]) for question in page.questions):
                return page


def batches(
    asker: Asker, tokens: int, rng: random.Random
) -> Iterator[tuple[DecodingConfig, Sequence[TrainingSequence]]]:
    """Yields batches without end, each of one layout, up to `tokens`, of rows of similar length."""
    waiting: dict[DecodingConfig, list[TrainingSequence]] = {ALONE: [], AUTOREGRESSIVE: []}
    while True:
        for _ in range(24):
            is_whole = rng.random() < asker.asking.autoregressive
            layout = AUTOREGRESSIVE if is_whole else ALONE
            row = asker.draw(layout, rng)
            if len(row) <= tokens:
                waiting[layout].append(row)
        yield from full_batches(waiting, 3 * tokens, tokens, rng)
