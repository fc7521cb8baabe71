"""Numbers in words, in seven languages: two, fünfundzwanzig, vingt et un, dos mil.

A language is data: how it writes what is below 100, the hundreds, the scales and what joins them.
The words of a number stand in falling order in all of them, so a pattern for the letters alone,
without spaces and hyphens, says whether words are one whole number, and which.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, lru_cache

_Words = Mapping[str, int]
_Placed = Sequence[tuple[tuple[int, int], str]]

_WORD = re.compile(r"[^\W\d_]+")
_GAP = re.compile(r"[\s,‐-―-]+")
_MOST_WORDS = 64
_LONG = 6
# As many digits as a double keeps.
_FRACTIONS = Context(prec=15)


@dataclass(frozen=True)
class _Language:
    """How a language writes numbers; all in small letters without accents.

    small: everything below 100. hundreds: what is a hundred or several, alone or before `small`;
    hundred: what multiplies by a hundred, alone as well. scales: by exponent, with whether the
    word may stand alone. joins: between all of these. halves: behind a number, and a half.
    """

    small: _Words
    hundreds: _Words
    hundred: Sequence[str]
    scales: Mapping[int, tuple[Sequence[str], bool]]
    joins: Sequence[str]
    points: Sequence[str]
    minus: Sequence[str]
    halves: Sequence[str]
    others: Mapping[str, str]
    pieces: Sequence[str] = ()
    hyphens: bool = False

    @cached_property
    def _group(self) -> str:
        small = _either(self.small)
        below_hundred = _either(word for word, value in self.small.items() if value)
        several = f"(?:{below_hundred})?(?:{_either(self.hundred)})" if self.hundred else "(?!)"
        full = f"(?:{_either(self.hundreds)}|{several})"
        return f"(?:{full}(?:{self._join}(?:{below_hundred}))?|{small})"

    @cached_property
    def _join(self) -> str:
        return f"(?:{_either(self.joins)})?"

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        parts = []
        for power, (words, alone) in sorted(self.scales.items(), reverse=True):
            thousands = ""
            if power > 3:  # "dos mil millones"
                thousand, is_alone = self.scales[3]
                before = f"(?P<k{power}>{self._group}){'?' if is_alone else ''}"
                thousands = f"(?:{before}(?P<t{power}>{_either(thousand)}){self._join})?"
            group = f"(?P<g{power}>{self._group})"
            optional = "?" if alone or thousands else ""
            parts.append(
                f"(?:{thousands}{group}{optional}(?P<s{power}>{_either(words)}){self._join})?"
            )
        return re.compile(f"(?=.){''.join(parts)}(?P<g0>{self._group})?")

    @cached_property
    def _parts(self) -> re.Pattern[str]:
        """Letters that are made of nothing but words of numbers."""
        scales = (word for words, _ in self.scales.values() for word in words)
        words = {*self.small, *self.hundreds, *self.hundred, *scales}
        words |= {*self.points, *self.others, *self.halves, *self.pieces}
        joins = f"(?:{_either(self.joins)})?"
        return re.compile(f"{joins}(?:(?:{_either(words)}){joins})+")

    @cached_property
    def _hundreds(self) -> re.Pattern[str]:
        several = f"(?P<n>{_either(self.small)})?(?P<by>{_either(self.hundred)})"
        known = f"(?P<full>{_either(self.hundreds)})"
        front = f"(?:{known}|{several})" if self.hundred else known
        return re.compile(f"{front}{self._join}(?P<rest>{_either(self.small)})?")

    def has(self, word: str) -> bool:
        return self._parts.fullmatch(word) is not None

    def begins(self, word: str) -> bool:
        """Whether a word that is none of a number begins as a long one does."""
        found = self._parts.match(word)
        return found is not None and found.end() > _LONG and not self.has(word)

    def value(self, letters: str) -> Decimal | None:
        """The number that these letters write, which is one; else None."""
        if letters in self.others:
            return Decimal(self.others[letters])
        for half in self.halves:
            if letters.endswith(half) and (found := self._integer(letters.removesuffix(half))):
                return found + Decimal("0.5")
        for point in self.points:
            before, is_there, behind = letters.partition(point)
            if is_there and (front := self._integer(before)) is not None:
                decimals = self._decimals(behind)
                return None if decimals is None else Decimal(f"{front}.{decimals}")
        return self._integer(letters)

    def _integer(self, letters: str) -> Decimal | None:
        found = self._whole.fullmatch(letters)
        if found is None:
            return None
        total = self._of_group(found["g0"]) or 0
        for power in self.scales:
            if not found[f"s{power}"]:
                continue
            count = self._of_group(found[f"g{power}"])
            if power > 3 and found[f"t{power}"]:
                thousands = self._of_group(found[f"k{power}"])
                count = (1 if thousands is None else thousands) * 1000 + (count or 0)
            if count is None and not self.scales[power][1]:
                return None
            total += (1 if count is None else count) * 10**power
        return Decimal(total)

    def _of_group(self, letters: str | None) -> int | None:
        if not letters:
            return None
        if letters in self.small:
            return self.small[letters]
        found = self._hundreds.fullmatch(letters)
        assert found is not None, letters
        rest = self.small[found["rest"]] if found["rest"] else 0
        if found["full"]:
            return self.hundreds[found["full"]] + rest
        return 100 * (self.small[found["n"]] if found["n"] else 1) + rest

    def _decimals(self, letters: str) -> str | None:
        digits = re.fullmatch(
            f"(?:{_either(w for w, v in self.small.items() if v < 10)})+", letters
        )
        if digits:
            one = re.compile(_either(word for word, value in self.small.items() if value < 10))
            return "".join(str(self.small[word]) for word in one.findall(letters))
        found = self._integer(letters)
        return None if found is None else str(found)


def _either(words: object) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True)) or "(?!)"  # type: ignore[call-overload]


def _numbered(words: str, start: int = 0, step: int = 1) -> dict[str, int]:
    """Words in a row, "/" between spellings of one."""
    return {
        spelling: start + step * place
        for place, word in enumerate(words.split())
        for spelling in word.split("/")
    }


def _tens(tens: _Words, ones: _Words, join: str = "", ones_first: bool = False) -> dict[str, int]:
    digits = {word: value for word, value in ones.items() if 1 <= value <= 9}
    return {
        (f"{word}{join}{ten}" if ones_first else f"{ten}{join}{word}"): high + low
        for ten, high in tens.items()
        for word, low in digits.items()
    }


def _english() -> _Language:
    ones = _numbered(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen"
    )
    tens = _numbered("twenty thirty forty/fourty fifty sixty seventy eighty ninety", 20, 10)
    parts = _numbered("half/halves third/thirds quarter/quarters/fourth/fourths fifth/fifths", 2)
    fractions = {
        f"{word}{part}": str(_FRACTIONS.divide(Decimal(value), Decimal(by)))
        for word, value in {**ones, "a": 1}.items()
        for part, by in parts.items()
        if 1 <= value < by
    }
    others = {
        **{
            "halfadozen": "6",
            "adozen": "12",
            "dozen": "12",
            "apair": "2",
            "pair": "2",
            "once": "1",
        },
        **{f"{word}dozen": str(12 * value) for word, value in ones.items() if value},
        **{"twice": "2", "single": "1", "double": "2", "triple": "3", "half": "0.5"},
        **{"ahundred": "100", "athousand": "1000", "amillion": "1000000", "halfamillion": "500000"},
        **{"abillion": "1000000000", **fractions},
    }
    return _Language(
        small={**ones, **tens, **_tens(tens, ones)},
        hundreds={},
        hundred=("hundred",),
        scales={
            3: (("thousand",), True),
            6: (("million", "millions"), False),
            9: (("billion", "billions"), False),
            12: (("trillion", "trillions"), False),
        },
        joins=("and",),
        points=("point",),
        minus=("minus", "negative"),
        halves=("andahalf", "andonehalf"),
        hyphens=True,
        others=others,
        pieces=(*parts, "quarter"),
    )


def _german() -> _Language:
    ones = _numbered(
        "null ein/eins/eine/einen/einem/einer zwei/zwo drei vier funf/fuenf sechs sieben acht neun "
        "zehn elf zwolf/zwoelf dreizehn vierzehn funfzehn/fuenfzehn sechzehn siebzehn achtzehn "
        "neunzehn"
    )
    tens = _numbered(
        "zwanzig dreißig/dreissig vierzig funfzig/fuenfzig sechzig siebzig achtzig neunzig",
        20,
        10,
    )
    return _Language(
        small={**ones, **tens, **_tens(tens, ones, "und", ones_first=True)},
        hundreds={},
        hundred=("hundert",),
        scales={
            3: (("tausend",), True),
            6: (("million", "millionen"), False),
            9: (("milliarde", "milliarden"), False),
            12: (("billion", "billionen"), False),
        },
        joins=("und",),
        points=("komma",),
        minus=("minus",),
        halves=("einhalb", "undeinhalb"),
        hyphens=True,
        others={"anderthalb": "1.5", "dutzend": "12", "eindutzend": "12", "halb": "0.5"},
    )


def _french() -> _Language:
    ones = _numbered(
        "zero un/une deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze "
        "quinze seize dixsept dixhuit dixneuf"
    )
    tens = _numbered(
        "vingt trente quarante cinquante soixante septante huitante/octante nonante", 20, 10
    )
    small = {**ones, **tens, **_tens(tens, ones), "quatrevingts": 80, "quatrevingt": 80}
    for ten, high in tens.items():
        small |= {f"{ten}etun": high + 1, f"{ten}etune": high + 1}
    later = {word: value for word, value in ones.items() if 1 <= value <= 19}
    small |= {f"quatrevingt{word}": 80 + value for word, value in later.items()}
    small |= {f"soixante{word}": 60 + value for word, value in later.items() if value > 9}
    small |= {"soixanteetonze": 71, "quatrevingtetun": 81, "quatrevingtetune": 81}
    return _Language(
        small=small,
        hundreds={},
        hundred=("cent", "cents"),
        scales={
            3: (("mille", "mil"), True),
            6: (("million", "millions"), False),
            9: (("milliard", "milliards"), False),
            12: (("billion", "billions"), False),
        },
        joins=("et",),
        points=("virgule",),
        minus=("moins",),
        halves=("etdemi", "etdemie"),
        pieces=("vingts",),
        others={"unedouzaine": "12", "douzaine": "12", "demi": "0.5", "demie": "0.5"},
    )


def _spanish() -> _Language:
    ones = _numbered(
        "cero uno/un/una dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce "
        "quince dieciseis diecisiete dieciocho diecinueve veinte"
    )
    tens = _numbered("treinta cuarenta cincuenta sesenta setenta ochenta noventa", 30, 10)
    return _Language(
        small={**ones, **tens, **_tens({"veinti": 20}, ones), **_tens(tens, ones, "y")},
        hundreds={
            **{"cien": 100, "ciento": 100},
            **_numbered(
                "doscientos/doscientas trescientos/trescientas cuatrocientos/cuatrocientas "
                "quinientos/quinientas seiscientos/seiscientas setecientos/setecientas "
                "ochocientos/ochocientas novecientos/novecientas",
                200,
                100,
            ),
        },
        hundred=(),
        scales={
            3: (("mil",), True),
            6: (("millon", "millones"), False),
            12: (("billon", "billones"), False),
        },
        joins=("y",),
        points=("coma", "punto"),
        minus=("menos",),
        halves=("ymedio", "ymedia"),
        others={"docena": "12", "unadocena": "12", "medio": "0.5", "media": "0.5"},
    )


def _portuguese() -> _Language:
    ones = _numbered(
        "zero um/uma dois/duas tres quatro cinco seis sete oito nove dez onze doze treze "
        "catorze/quatorze quinze dezesseis/dezasseis dezessete/dezassete dezoito dezenove/dezanove"
    )
    tens = _numbered("vinte trinta quarenta cinquenta sessenta setenta oitenta noventa", 20, 10)
    return _Language(
        small={**ones, **tens, **_tens(tens, ones, "e"), **_tens(tens, ones)},
        hundreds={
            **{"cem": 100, "cento": 100},
            **_numbered(
                "duzentos/duzentas trezentos/trezentas quatrocentos/quatrocentas "
                "quinhentos/quinhentas seiscentos/seiscentas setecentos/setecentas "
                "oitocentos/oitocentas novecentos/novecentas",
                200,
                100,
            ),
        },
        hundred=(),
        scales={
            3: (("mil",), True),
            6: (("milhao", "milhoes"), False),
            9: (("bilhao", "bilhoes"), False),
            12: (("trilhao", "trilhoes"), False),
        },
        joins=("e",),
        points=("virgula", "ponto"),
        minus=("menos",),
        halves=("emeio", "emeia"),
        others={"duzia": "12", "umaduzia": "12", "meio": "0.5", "meia": "0.5"},
    )


def _italian() -> _Language:
    ones = _numbered(
        "zero uno/un/una due tre quattro cinque sei sette otto nove dieci undici dodici tredici "
        "quattordici quindici sedici diciassette diciotto diciannove"
    )
    tens = _numbered("venti trenta quaranta cinquanta sessanta settanta ottanta novanta", 20, 10)
    cut = {
        f"{ten[:-1]}{word}": high + low
        for ten, high in tens.items()
        for word, low in {"uno": 1, "un": 1, "una": 1, "otto": 8}.items()
    }
    return _Language(
        small={**ones, **tens, **_tens(tens, ones), **cut},
        hundreds={},
        hundred=("cento", "cent"),
        scales={
            3: (("mille", "mila"), True),
            6: (("milione", "milioni"), False),
            9: (("miliardo", "miliardi"), False),
            12: (("bilione", "bilioni"), False),
        },
        joins=("e",),
        points=("virgola", "punto"),
        minus=("meno",),
        halves=("emezzo", "emezza"),
        others={"dozzina": "12", "unadozzina": "12", "mezzo": "0.5", "mezza": "0.5"},
    )


def _dutch() -> _Language:
    ones = _numbered(
        "nul een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien "
        "vijftien zestien zeventien achttien negentien"
    )
    tens = _numbered("twintig dertig veertig vijftig zestig zeventig tachtig negentig", 20, 10)
    return _Language(
        small={**ones, **tens, **_tens(tens, ones, "en", ones_first=True)},
        hundreds={},
        hundred=("honderd",),
        scales={
            3: (("duizend",), True),
            6: (("miljoen",), False),
            9: (("miljard",), False),
            12: (("biljoen",), False),
        },
        joins=("en",),
        points=("komma", "punt"),
        minus=("min", "minus"),
        halves=("enhalf", "eneenhalf", "eenhalf"),
        hyphens=True,
        others={"anderhalf": "1.5", "dozijn": "12", "eendozijn": "12", "half": "0.5"},
    )


@lru_cache(maxsize=1)
def _languages() -> tuple[_Language, ...]:
    return _english(), _german(), _french(), _spanish(), _portuguese(), _italian(), _dutch()


# Numbers of other languages beside which one of ours is a part of a number, not a number.
_FOREIGN = re.compile(
    r"hundr|tus(?:en|ind)|tysi|tisic|ezer|mil+i?j?[oa]|miljard|milliar|bil+i|tril|"
    r"(?:sto|sute?|suta|mie|mii|mil|cents|zece|zeci|tuhat|tuhatta|sata|sataa|syv|fem|sju|ett|en|"
    r"og|och|si|u|cinc|sis|vuit|nou|ting|i)$"
)
_ORDINAL = re.compile(r".*(?:first|second|third|th|ieth|ieme|iemes|eme)")


def in_digits(text: str) -> str:
    """The text with its number words in digits; as it is, where it has none.

    The language is the one that knows the most of the words. Raises ValueError where words of
    numbers make no number, and where languages differ in what they mean.
    """
    words = [(found.span(), _flat(found[0])) for found in _WORD.finditer(text)]
    if not words or len(words) > _MOST_WORDS:
        return text
    found: dict[str, int] = {}
    best, failures = 0, 0
    for language in _languages():
        known = [language.has(word) and word not in language.joins for _, word in words]
        covered = _covered(words, known, language)
        if not covered or covered < best:
            continue
        if covered > best:
            found, best, failures = {}, covered, 0
        try:
            found.setdefault(_written(text, words, known, language), 0)
        except ValueError:
            failures += 1
    if len(found) > 1:
        said = " or ".join(sorted(found))
        raise ValueError(f"may mean {said}, in different languages")
    if not found and failures:
        raise ValueError("states numbers in words that make no number together")
    return next(iter(found), text)


def _covered(words: _Placed, known: Sequence[bool], language: _Language) -> int:
    """How many letters a language understands, those of joins between numbers among them."""
    total = 0
    for place, (_, word) in enumerate(words):
        between = 0 < place < len(words) - 1 and known[place - 1] and known[place + 1]
        if known[place] or (between and word in language.joins):
            total += len(word)
    return total


def _flat(word: str) -> str:
    """In small letters without accents; "ß" and umlauts' letters stay as they are written."""
    return "".join(
        char
        for char in unicodedata.normalize("NFD", word.lower())
        if not unicodedata.combining(char)
    )


def _written(text: str, words: _Placed, known: Sequence[bool], language: _Language) -> str:
    pieces, at = [], 0
    for first, last in _runs(text, words, known, language):
        for start, end, value in _values(text, words, first, last, language):
            begin = words[start][0][0]
            sign = ""
            if start and words[start - 1][1] in language.minus and _joined(text, words, start - 1):
                begin, sign = words[start - 1][0][0], "-"
            pieces += [text[at:begin], sign, f"{value:f}"]
            at = words[end - 1][0][1]
    return "".join([*pieces, text[at:]])


def _runs(
    text: str, words: _Placed, known: Sequence[bool], language: _Language
) -> Iterator[tuple[int, int]]:
    """Where words of numbers follow each other, with what joins them between."""
    first = 0
    while first < len(words):
        if not known[first]:
            first += 1
            continue
        last = end = first + 1
        while end < len(words) and _joined(text, words, end - 1):
            if known[end]:
                last = end = end + 1
            elif words[end][1] in language.joins or words[end][1] == "a":
                end += 1
            else:
                break
        is_led = first and words[first - 1][1] == "a" and _joined(text, words, first - 1)
        yield first - bool(is_led and _is_phrase(words, first - 1, last, language)), last
        first = last


def _is_phrase(words: _Placed, first: int, last: int, language: _Language) -> bool:
    return language.value("".join(word for _, word in words[first:last])) is not None


def _joined(text: str, words: _Placed, at: int) -> bool:
    """Whether nothing stands between a word and the next one but a space, a comma or a hyphen."""
    return _GAP.fullmatch(text[words[at][0][1] : words[at + 1][0][0]]) is not None


def _values(
    text: str, words: _Placed, first: int, last: int, language: _Language
) -> Iterator[tuple[int, int, Decimal]]:
    """The one number of a run, or those between its commas and its "and"s."""
    _check_neighbours(text, words, first, last, language)
    value = language.value("".join(word for _, word in words[first:last]))
    if value is not None:
        yield first, last, value
        return
    start = first
    for end in range(first + 1, last + 1):
        is_cut = (
            end == last
            or words[end][1] in language.joins
            or "," in text[words[end - 1][0][1] : words[end][0][0]]
        )
        if is_cut:
            value = language.value("".join(word for _, word in words[start:end]))
            if value is None:
                raise ValueError
            yield start, end, value
            start = end + (end < last and words[end][1] in language.joins)


def _check_neighbours(
    text: str, words: _Placed, first: int, last: int, language: _Language
) -> None:
    """Raises ValueError where words beside a number are parts of it that the language lacks."""
    for place, seam in ((first - 1, first - 1), (last, last - 1)):
        if not 0 <= place < len(words) or not _joined(text, words, seam):
            continue
        word = words[place][1]
        if _FOREIGN.match(word) and word not in (*language.minus, *language.joins):
            raise ValueError
        if place == last and word in language.joins and last + 1 < len(words):
            place, word = last + 1, words[last + 1][1]
        if language.begins(word) or (place >= last and _ORDINAL.fullmatch(word)):
            raise ValueError
        if "-" in text[words[seam][0][1] : words[seam + 1][0][0]] and not language.hyphens:
            raise ValueError
