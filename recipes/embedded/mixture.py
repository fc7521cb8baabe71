"""The training mixture: batches of pages from shelves, invented titles, letters and patterns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import jinja2

from recipes.embedded.augment import Augmenter
from recipes.embedded.columns import columned
from recipes.embedded.features import ask_feature
from recipes.embedded.invented import ask_facet, draw_title
from recipes.embedded.items import ask_pattern, without_items
from recipes.embedded.kinds import read_kinds
from recipes.embedded.letters import CURRENCY_CHOICES, FACETS, NAMES, draw_letter
from recipes.embedded.patterns import read_patterns
from recipes.embedded.prompts import ALONE, FORMATS, NoisyTokenizer, Page, layouts, written
from recipes.embedded.questions import Attribute, Habits, Question, ask, attributes_of
from recipes.embedded.shelves import Document, Library, Shelf, examples_of
from recipes.embedded.telling import draw_document
from schemax.compiler import TextCodec
from schemax.config import DecodingConfig
from schemax.evaluation.examples import Example
from schemax.training.schedule import split_by_tokens
from schemax.training.sequences import TrainingSequence

INVENTED, LETTERS = "invented", "letters"
PATTERNS, NEW_PATTERNS = "patterns", "new patterns"
# Documents of one group do not state the attributes of another group.
GROUPS = {"goods", "requests", "texts"}
# Names of attributes that many kinds of documents share, so that they are never foreign.
_COMMON = {
    *("brand", "color", "colour", "size", "material", "type", "name", "title", "date", "price"),
    *("model", "manufacturer", "series", "model name", "model number", "capacity", "quantity"),
    *("city", "location", "time", "country", "genre", "category", "weight", "place", "state"),
}
# Names of a category, as by a schema's author who did not name it well.
_ANY = ("Product", "Item", "Document", "Text", "Record", "Entry", "Data")
# Half of the invented titles are of these kinds, the others of any kind.
_SCREENS = ("television", "television", "television", "monitor", "laptop")
# The most tokens of a text.
_LONGEST = 560


@dataclass(frozen=True, slots=True)
class Variety:
    """The augmentation of pages, as shares.

    bpe_dropout: merges skipped, in two texts of ten.
    varied, invented: see `Augmenter`; varied_little: for sources with many texts.
    nulls: the most missing values that are learnt as null; wide schemas are mostly null, and a
        model that learns all nulls learns to answer null long before it learns to read.
    described: prompts with descriptions of their fields.
    featured: pages of goods with a question about a feature.
    foreign: pages with questions of other shelves, whose answer is null.
    padded: texts with a text of another kind beside them. columned: texts as several columns.
    own_template: prompts by the model's own template, not by a user's.
    read_twice: prompts whose second reading is learnt.
    """

    bpe_dropout: float = 0.1
    varied: float = 0.6
    varied_little: float = 0.3
    invented: float = 0.35
    nulls: float = 0.5
    described: float = 0.45
    featured: float = 0.12
    foreign: float = 0.45
    padded: float = 0.04
    columned: float = 0.06
    own_template: float = 0.87
    read_twice: float = 0.05
    habits: Habits = field(default_factory=Habits)


@dataclass(frozen=True, slots=True)
class Templates:
    """The model's own template, and users' templates with their shares."""

    own: jinja2.Template
    others: Mapping[str, jinja2.Template]
    shares: Mapping[str, float]


class Reader:
    """A sampler of pages from a library."""

    def __init__(self, library: Library, variety: Variety) -> None:
        self._library, self._variety = library, variety
        every = [shelf for group in library.shelves.values() for shelf in group]
        self._attributes = {id(shelf): attributes_of(shelf) for shelf in every}
        self._foreign: dict[str, list[Attribute]] = {}
        for shelf in every:
            if shelf.group not in GROUPS:
                continue
            for attribute in self._attributes[id(shelf)].values():
                for group in GROUPS - {shelf.group}:
                    if attribute.name.lower() not in _COMMON:
                        self._foreign.setdefault(group, []).append(attribute)
        self._augment = Augmenter(examples_of(every), 1.0, variety.invented)
        # A page is about one shelf; large shelves are drawn more often, but sublinearly.
        self._weights = {
            name: [len(shelf.documents) ** 0.75 for shelf in shelves]
            for name, shelves in library.shelves.items()
        }
        self._texts = [shelf for shelf in every if shelf.group in GROUPS - {"goods"}]

    def page(self, count: int, rng: random.Random) -> Page:
        """Draws a page of `count` documents."""
        shares = self._library.shares
        name = rng.choices([*shares], [*shares.values()])[0]
        if name == INVENTED:
            return self._invented(count, rng)
        if name == LETTERS:
            return self._letters(count, rng)
        if name in (PATTERNS, NEW_PATTERNS):
            return self._patterned(count, rng, aside=name == NEW_PATTERNS)
        shelf = rng.choices(self._library.shelves[name], self._weights[name])[0]
        return self.page_of(shelf, count, rng)

    def page_of(self, shelf: Shelf, count: int, rng: random.Random) -> Page:
        variety, habits = self._variety, self._variety.habits
        documents = [self._document(shelf, rng) for _ in range(count)]
        known = self._attributes[id(shelf)]
        stated = [name for name in known if any(name in d.values for d in documents)]
        names = [*known] if shelf.nulls else stated
        names = _subset(names, stated, shelf.source == "titles", rng)
        told = variety.described * (0.5 if shelf.source == "titles" else 1)
        described = rng.choice((0.5, 1.0)) if rng.random() < told else 0.0
        questions = []
        for name in names:
            answers = [document.values.get(name) for document in documents]
            nulls = [rng.random() < min(shelf.nulls, variety.nulls) for _ in documents]
            questions.append(
                ask(known[name], answers, nulls, rng.random() < described, habits, rng)
            )
        texts = [self._text(document, rng) for document in documents]
        strangers = self._foreign.get(shelf.group, [])
        if strangers and rng.random() < variety.foreign * (0.35 if shelf.nulls else 1):
            for attribute in rng.choices(strangers, k=rng.randrange(1, 4)):
                if attribute.name not in shelf.about:
                    nothing = [None] * count
                    alike = rng.random() < max(described, 0.3)
                    questions.append(ask(attribute, nothing, [True] * count, alike, habits, rng))
        if shelf.group == "goods" and rng.random() < variety.featured:
            texts, question = ask_feature(texts, rng.random() < described, habits, rng)
            questions.append(question)
        if rng.random() < 0.6 and shelf.source != "titles":
            rng.shuffle(questions)
        texts = [self._padded(shelf, text, rng) for text in texts]
        return Page(_category(shelf.name, rng), texts, _distinct(questions))

    def _text(self, document: Document, rng: random.Random) -> str:
        if rng.random() >= self._variety.columned:
            return document.text
        return columned(document.text, document.values, rng)

    def _document(self, shelf: Shelf, rng: random.Random) -> Document:
        document = rng.choice(shelf.documents)
        variety = self._variety
        rate = variety.varied if shelf.source in ("titles", "listings") else variety.varied_little
        if rng.random() >= rate or not all(isinstance(v, str) for v in document.values.values()):
            return document
        varied = self._augment(
            Example(shelf.name, document.text, dict(document.values)),  # type: ignore[arg-type]
            rng,
        )
        values = {name: str(value) for name, value in varied.attributes.items()}
        return Document(varied.text, values) if varied.text.strip() else document

    def _padded(self, shelf: Shelf, text: str, rng: random.Random) -> str:
        """Sometimes adds an irrelevant text of another kind before or behind the text."""
        if rng.random() >= self._variety.padded or shelf.group == "texts":
            return text
        other = rng.choice(self._texts)
        if other.group == shelf.group:
            return text
        around = rng.choice(other.documents).text
        return f"{text}\n{around}" if rng.random() < 0.7 else f"{around}\n{text}"

    def _invented(self, count: int, rng: random.Random) -> Page:
        kinds = read_kinds()
        kind = kinds[rng.choice(_SCREENS if rng.random() < 0.5 else [*kinds])]
        titles = [draw_title(kind, rng) for _ in range(count)]
        described = rng.choice((0.0, 0.7, 1.0))
        places = rng.sample(
            range(len(kind.facets)), rng.randrange(min(3, len(kind.facets)), len(kind.facets) + 1)
        )
        questions = [
            ask_facet(
                kind.facets[place],
                [title.said.get(place) for title in titles],
                rng.random() < described,
                self._variety.habits,
                rng,
            )
            for place in places
        ]
        texts = [self._long(title.text, rng) for title in titles]
        return Page(_category(rng.choice(kind.names), rng), texts, _distinct(questions))

    def _long(self, text: str, rng: random.Random) -> str:
        if rng.random() >= self._variety.padded:
            return text
        return f"{text}\n{rng.choice(rng.choice(self._texts).documents).text}"

    def _letters(self, count: int, rng: random.Random) -> Page:
        letters = [draw_letter(rng) for _ in range(count)]
        names = [name for name in FACETS if any(name in letter.said for letter in letters)]
        names = rng.sample(names, rng.randrange(min(2, len(names)), len(names) + 1))
        if rng.random() < 0.4:
            names += rng.sample([*FACETS], 1)
        described = rng.choice((0.0, 0.7, 1.0))
        questions = []
        for name in dict.fromkeys(names):
            facet = FACETS[name]
            if name == "currency":
                facet = replace(facet, choices=(CURRENCY_CHOICES,))
            said = [letter.said.get(name) for letter in letters]
            questions.append(
                ask_facet(facet, said, rng.random() < described, self._variety.habits, rng)
            )
        texts = [letter.text for letter in letters]
        return Page(_category(rng.choice(NAMES), rng), texts, _distinct(questions))

    def _patterned(self, count: int, rng: random.Random, *, aside: bool) -> Page:
        pattern = rng.choice(read_patterns(aside=aside))
        told = [draw_document(pattern, rng) for _ in range(count)]
        keys = rng.sample([*pattern.fields], len(pattern.fields))
        if rng.random() < 0.5:
            keys = keys[: rng.randrange(min(3, len(keys)), len(keys) + 1)]
        described = rng.choice((0.0, 0.6, 1.0, 1.0))
        # Fields of patterns have several names, which must not be replaced.
        habits = replace(self._variety.habits, renamed=0.0)
        questions = []
        for key in keys:
            said = [document.said.get(key) for document in told]
            asked = rng.random() < described
            question = ask_pattern(pattern.fields[key], said, asked, habits, rng)
            learnt = [
                right and (value is not None or rng.random() < self._variety.nulls)
                for right, value in zip(question.learnt, question.values, strict=True)
            ]
            questions.append(replace(question, learnt=learnt))
        texts = [document.text for document in told]
        return Page(_category(rng.choice(pattern.names), rng), texts, _distinct(questions))


def _subset(names: list[str], stated: list[str], ordered: bool, rng: random.Random) -> list[str]:
    """Draws some of the names, at least one of them with a value if there is any."""
    chosen = list(names)
    if not ordered or rng.random() < 0.7:
        rng.shuffle(chosen)
    if rng.random() < (0.3 if ordered else 0.5):
        chosen = chosen[: rng.randrange(min(3, len(chosen)), len(chosen) + 1)]
    chosen = chosen[:14]
    if stated and not set(stated) & set(chosen):
        chosen.append(rng.choice(stated))
    return chosen or names[:1]


def _distinct(questions: Sequence[Question]) -> list[Question]:
    """Drops questions whose label equals an earlier one but for case and punctuation."""
    found: dict[str, Question] = {}
    for question in questions:
        found.setdefault("".join(filter(str.isalnum, question.label.lower())), question)
    return [*found.values()]


def _category(name: str, rng: random.Random) -> str:
    return rng.choice(_ANY) if rng.random() < 0.1 else name


def batches(
    reader: Reader,
    codec: TextCodec,
    templates: Templates,
    tokens_per_batch: int,
    variety: Variety,
    rng: random.Random,
) -> Iterator[tuple[DecodingConfig, list[TrainingSequence]]]:
    """Yields batches without end, each of one layout, of sequences of similar length."""
    noisy = NoisyTokenizer(codec, variety.bpe_dropout)
    waiting: dict[DecodingConfig, list[TrainingSequence]] = {}
    drawn = layouts(rng)
    while True:
        for layout in (next(drawn) for _ in range(48)):
            sequence = draw(reader, codec, noisy, templates, layout, variety, rng)
            waiting.setdefault(replace(layout, documents_per_prompt=1), []).append(sequence)
        yield from full_batches(waiting, 1.5 * tokens_per_batch, tokens_per_batch, rng)


def full_batches(
    waiting: Mapping[DecodingConfig, list[TrainingSequence]],
    least: float,
    tokens: int,
    rng: random.Random,
) -> Iterator[tuple[DecodingConfig, list[TrainingSequence]]]:
    """Yields batches of the layouts whose waiting sequences have `least` tokens, and empties these.

    tokens: of a batch.
    """
    for layout, sequences in waiting.items():
        if sum(map(len, sequences)) < least:
            continue
        parts = split_by_tokens(sorted(sequences, key=len), tokens)
        sequences.clear()
        rng.shuffle(parts)
        for part in parts:
            yield layout, part


def draw(
    reader: Reader,
    codec: TextCodec,
    noisy: NoisyTokenizer,
    templates: Templates,
    layout: DecodingConfig,
    variety: Variety,
    rng: random.Random,
) -> TrainingSequence:
    """Draws a sequence of a layout: a page, a format, a template."""
    own = rng.random() < variety.own_template
    if layout.documents == "stacked":
        count = layout.documents_per_prompt
    elif layout.layout == "autoregressive":
        count = 1
    else:
        # Long instructions are shared among more texts.
        count = rng.choice((1, 2, 2, 3, 3)) if own else rng.choice((2, 3, 4))
    name = rng.choices([*templates.shares], [*templates.shares.values()])[0]
    template = templates.own if own else templates.others[name]
    encode = noisy.encode if rng.random() < 0.2 else codec.encode
    while True:
        page = reader.page(count, rng)
        if layout != ALONE:
            page = without_items(page)
        if layout.documents == "stacked" and max(map(len, page.texts)) > 300:
            continue
        lengths = [len(text) for text in page.texts]
        if layout == ALONE and max(lengths) > 400:
            page = replace_texts(page, 1)
        if max(len(codec.encode(text)) for text in page.texts) > _LONGEST:
            continue
        if not any(any(question.learnt) for question in page.questions):
            continue
        return written(
            page,
            codec,
            encode,
            format=rng.choice(FORMATS),
            template=template,
            layout=layout,
            read_twice=own and rng.random() < variety.read_twice,
        )


def replace_texts(page: Page, count: int) -> Page:
    """Returns the page with its first documents only; attention is quadratic in a row's length."""
    return Page(
        page.category,
        page.texts[:count],
        [
            replace(question, values=question.values[:count], learnt=question.learnt[:count])
            for question in page.questions
        ],
    )
