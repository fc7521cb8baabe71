"""Nearest examples: every document is shown the examples whose texts are most like its own.

The prompt of one example is cut where the example's text begins and where the document's begins.
The first part is the instruction, the second a demonstration, which depends on nothing but its
example. So each demonstration is read once, and stands before all documents that are like it.
Demonstrations stand beside each other and do not see each other (parallel context windows, Ratner
et al. 2023); they are chosen by the words that texts share (ExtractGPT, Brinkmann et al. 2024).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rapidfuzz import fuzz, process

from schemax.compiler.prompt import PromptText, ShownExample, clean_document, fence_before
from schemax.compiler.tokenizer import TextCodec
from schemax.errors import TemplateError
from schemax.tokens import Ids

# (whether it is markup, the text)
_Part = tuple[bool, str]

_SENTINELS = f"\ue002{uuid.uuid4().hex}\ue003", f"\ue002{uuid.uuid4().hex}\ue003"

MARKED_EXAMPLE = ShownExample(_SENTINELS[0], None, _SENTINELS[1])
"""An example whose text and output are recognised in a prompt."""


@dataclass(slots=True, eq=False)
class NearestExamples:
    """The examples of a category, and the layout of one example before a document.

    parts: (is markup, text) of a demonstration, with sentinels for an example's text and output.
    count: the number of examples that a document is shown.
    """

    examples: Sequence[ShownExample]
    count: int
    codec: TextCodec
    parts: Sequence[_Part]
    sentinels: tuple[str, str]
    fence: str | None
    _written: dict[int, Ids] = field(default_factory=dict)

    def of(self, text: str) -> tuple[Ids, ...]:
        """The token ids of a document's demonstrations, the most alike first."""
        texts = dict(enumerate(example.text for example in self.examples))
        nearest = process.extract(text, texts, scorer=fuzz.token_set_ratio, limit=self.count)
        return tuple(self._ids(place) for _, _, place in nearest)

    @property
    def written(self) -> tuple[Ids, ...]:
        """The token ids of all demonstrations."""
        return tuple(map(self._ids, range(len(self.examples))))

    def _ids(self, place: int) -> Ids:
        if place not in self._written:
            example = self.examples[place]
            text = clean_document(example.text, self.fence)
            self._written[place] = self._encoded_parts(
                dict(zip(self.sentinels, (text, example.output), strict=True))
            )
        return self._written[place]

    def _encoded_parts(self, values: dict[str, str]) -> Ids:
        token_ids: list[int] = []
        for place, (is_markup, text) in enumerate(self.parts):
            for sentinel, value in values.items():
                text = text.replace(sentinel, value)
            if is_markup:
                token_ids += self.codec.encode_markup(text, token_ids or None)
            else:
                # White space around a whole message is stripped, as in other prompts.
                is_whole = 0 < place < len(self.parts) - 1
                content = text.strip() if is_whole else text
                token_ids += self.codec.encode(content, token_ids or None)
        return tuple(token_ids)


def cut_at_example(
    shown: PromptText,
    examples: Sequence[ShownExample],
    count: int,
    codec: TextCodec,
) -> tuple[PromptText, NearestExamples | None]:
    """The prompt without examples, and the examples; None if the template leaves examples out.

    shown: the prompt with `MARKED_EXAMPLE` alone.

    Raises TemplateError for a template that does not show the text of an example once, and its
    output once, behind that.
    """
    messages = *shown.chat.turns, (shown.chat.prefix, shown.instruction)
    parts = [part for markup, content in messages for part in ((True, markup), (False, content))]
    text = "".join(text for _, text in parts)
    places = [text.find(sentinel) for sentinel in _SENTINELS]
    if max(places) < 0:
        return shown, None
    if any(text.count(sentinel) != 1 for sentinel in _SENTINELS) or places[0] > places[1]:
        raise TemplateError(
            "nearest_examples requires a template that shows the text of an example once, then "
            "its output once"
        )
    (at,) = (n for n, (_, text) in enumerate(parts) if _SENTINELS[0] in text)
    before, behind = parts[at][1].split(_SENTINELS[0])
    nearest = NearestExamples(
        examples,
        count,
        codec,
        ((False, _SENTINELS[0] + behind), *parts[at + 1 :]),
        _SENTINELS,
        fence_before(behind),
    )
    turns = [(parts[n][1], parts[n + 1][1]) for n in range(0, at - 1, 2)]
    chat = replace(shown.chat, turns=tuple(turns), prefix=parts[at - 1][1])
    return replace(shown, chat=chat, instruction=before), nearest
