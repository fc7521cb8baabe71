"""The number words of seven languages."""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache

from schemax.reading.number_language import NumberLanguage, Words

# The precision of a double.
_FRACTIONS = Context(prec=15)


def _numbered(words: str, start: int = 0, step: int = 1) -> dict[str, int]:
    """Assigns numbers to words in a row; "/" separates spellings of a word."""
    return {
        spelling: start + step * place
        for place, word in enumerate(words.split())
        for spelling in word.split("/")
    }


def _tens(tens: Words, ones: Words, join: str = "", ones_first: bool = False) -> dict[str, int]:
    digits = {word: value for word, value in ones.items() if 1 <= value <= 9}
    return {
        (f"{word}{join}{ten}" if ones_first else f"{ten}{join}{word}"): high + low
        for ten, high in tens.items()
        for word, low in digits.items()
    }


def _english() -> NumberLanguage:
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
    return NumberLanguage(
        small={**ones, **tens, **_tens(tens, ones)},
        hundred=("hundred",),
        scales=_numbered("thousand million/millions billion/billions trillion/trillions", 3, 3),
        joins=("and",),
        points=("point",),
        minus=("minus", "negative"),
        halves=("andahalf", "andonehalf"),
        hyphens=True,
        others=others,
        pieces=(*parts, "quarter"),
    )


def _german() -> NumberLanguage:
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
    return NumberLanguage(
        small={**ones, **tens, **_tens(tens, ones, "und", ones_first=True)},
        hundred=("hundert",),
        scales=_numbered("tausend million/millionen milliarde/milliarden billion/billionen", 3, 3),
        joins=("und",),
        points=("komma",),
        minus=("minus",),
        halves=("einhalb", "undeinhalb"),
        hyphens=True,
        others={"anderthalb": "1.5", "dutzend": "12", "eindutzend": "12", "halb": "0.5"},
    )


def _french() -> NumberLanguage:
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
    return NumberLanguage(
        small=small,
        hundred=("cent", "cents"),
        scales=_numbered("mille/mil million/millions milliard/milliards billion/billions", 3, 3),
        joins=("et",),
        points=("virgule",),
        minus=("moins",),
        halves=("etdemi", "etdemie"),
        pieces=("vingts",),
        others={"unedouzaine": "12", "douzaine": "12", "demi": "0.5", "demie": "0.5"},
    )


def _spanish() -> NumberLanguage:
    ones = _numbered(
        "cero uno/un/una dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce "
        "quince dieciseis diecisiete dieciocho diecinueve veinte"
    )
    tens = _numbered("treinta cuarenta cincuenta sesenta setenta ochenta noventa", 30, 10)
    return NumberLanguage(
        small={**ones, **tens, **_tens({"veinti": 20}, ones), **_tens(tens, ones, "y")},
        hundreds=_numbered(
            "cien/ciento doscientos/doscientas trescientos/trescientas cuatrocientos/cuatrocientas "
            "quinientos/quinientas seiscientos/seiscientas setecientos/setecientas "
            "ochocientos/ochocientas novecientos/novecientas",
            100,
            100,
        ),
        scales={"mil": 3, "millon": 6, "millones": 6, "billon": 12, "billones": 12},
        joins=("y",),
        points=("coma", "punto"),
        minus=("menos",),
        halves=("ymedio", "ymedia"),
        others={"docena": "12", "unadocena": "12", "medio": "0.5", "media": "0.5"},
    )


def _portuguese() -> NumberLanguage:
    ones = _numbered(
        "zero um/uma dois/duas tres quatro cinco seis sete oito nove dez onze doze treze "
        "catorze/quatorze quinze dezesseis/dezasseis dezessete/dezassete dezoito dezenove/dezanove"
    )
    tens = _numbered("vinte trinta quarenta cinquenta sessenta setenta oitenta noventa", 20, 10)
    return NumberLanguage(
        small={**ones, **tens, **_tens(tens, ones, "e"), **_tens(tens, ones)},
        hundreds=_numbered(
            "cem/cento duzentos/duzentas trezentos/trezentas quatrocentos/quatrocentas "
            "quinhentos/quinhentas seiscentos/seiscentas setecentos/setecentas "
            "oitocentos/oitocentas novecentos/novecentas",
            100,
            100,
        ),
        scales=_numbered("mil milhao/milhoes bilhao/bilhoes trilhao/trilhoes", 3, 3),
        joins=("e",),
        points=("virgula", "ponto"),
        minus=("menos",),
        halves=("emeio", "emeia"),
        others={"duzia": "12", "umaduzia": "12", "meio": "0.5", "meia": "0.5"},
    )


def _italian() -> NumberLanguage:
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
    return NumberLanguage(
        small={**ones, **tens, **_tens(tens, ones), **cut},
        hundred=("cento", "cent"),
        scales=_numbered("mille/mila milione/milioni miliardo/miliardi bilione/bilioni", 3, 3),
        joins=("e",),
        points=("virgola", "punto"),
        minus=("meno",),
        halves=("emezzo", "emezza"),
        others={"dozzina": "12", "unadozzina": "12", "mezzo": "0.5", "mezza": "0.5"},
    )


def _dutch() -> NumberLanguage:
    ones = _numbered(
        "nul een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien "
        "vijftien zestien zeventien achttien negentien"
    )
    tens = _numbered("twintig dertig veertig vijftig zestig zeventig tachtig negentig", 20, 10)
    return NumberLanguage(
        small={**ones, **tens, **_tens(tens, ones, "en", ones_first=True)},
        hundred=("honderd",),
        scales=_numbered("duizend miljoen miljard biljoen", 3, 3),
        joins=("en",),
        points=("komma", "punt"),
        minus=("min", "minus"),
        halves=("enhalf", "eneenhalf", "eenhalf"),
        hyphens=True,
        others={"anderhalf": "1.5", "dozijn": "12", "eendozijn": "12", "half": "0.5"},
    )


@lru_cache(maxsize=1)
def number_languages() -> tuple[NumberLanguage, ...]:
    return _english(), _german(), _french(), _spanish(), _portuguese(), _italian(), _dutch()
