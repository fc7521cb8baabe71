"""Grammars: the texts that may be written into a slot, and the JSON Schema of a whole output.

A slot's grammar is one regular expression in llguidance's Lark dialect (its docs/syntax.md): a
space, a literal or a text that is read as a literal, and a text that may follow it in the output. A
single terminal has no ambiguous parses, and llguidance builds its automaton as decoding goes. The
format spells texts (`schemax.formats.Spelling`); the attribute's type allows them.

docs/constraints.md lists what every type allows, and what is left to validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import lru_cache
from typing import Any, TypeAlias

from schemax.attributes import Attribute
from schemax.attributes.field_type import LIST_KEYWORDS, limits_of
from schemax.compiler.patterns import ANY, is_found, is_supported, spelled_pattern, writer
from schemax.compiler.terminals import NEVER, all_of, any_of, days, keeps, moments, number
from schemax.errors import SchemaError
from schemax.formats import Form, OutputFormat, Spelling, Writable
from schemax.reading.booleans import spellings
from schemax.reading.kinds import SCALARS
from schemax.reading.kinds.codes import Code
from schemax.reading.kinds.duration import DURATION

_LENGTH_KEYWORDS = ("minLength", "maxLength")

# The longest text whose characters are counted: counting multiplies the automaton's states.
_LONGEST_COUNTED = 100
_LONGEST_COUNTED_OF_PATTERN = 32
# The most items of a list in one slot: the grammar writes them out.
_MOST_COUNTED_ITEMS = 1_000


TextForm: TypeAlias = tuple[bytes, frozenset[str]]
"""The form in which every text of a slot is written: the bytes before the characters, the leading
space included, and the characters that are escaped."""


def slot_grammar(
    attribute: Attribute,
    output_format: OutputFormat,
    tails: Sequence[str],
    *,
    literals: bool = True,
) -> str | None:
    """The Lark grammar of all that the model may write into a slot of the attribute.

    tails: the texts that may follow a value in the output, such as ",\\n" and "\\n}".
    literals: allows literals alone, not texts that are read as values; literals meet conditions.

    Returns None for a format without a spelling: its slots are not constrained.
    """
    spelling = spelling_of(output_format)
    if spelling is None:
        return None
    value = _Value(attribute, output_format, spelling, literals)
    values = list(value.lists()) if attribute.is_list else ["ITEM"]
    if not literals and attribute.takes_texts:
        free = _Value(replace(attribute, constraints=()), output_format, spelling, literals)
        values += map(free.text, spelling.texts)
    if attribute.may_be_null:
        values.append(_exactly(_bare(output_format.escape(None))))
    return "\n".join(
        [
            "start: SLOT",
            f"ITEM: {any_of(value.items())}",
            f'SLOT: " " {any_of(values)} {any_of([*map(_exactly, tails)])}',
            "",
        ]
    )


def free_text_form(attribute: Attribute, output_format: OutputFormat) -> TextForm | None:
    """The form of the attribute's texts, if every text is allowed and written in one way."""
    spelling = spelling_of(output_format)
    is_free = not attribute.is_list and any(
        variant.is_text and not variant.constraints for variant in attribute.variants
    )
    if spelling is None or not (is_free or attribute.takes_texts):
        return None
    if len(spelling.texts) != 1 or spelling.exceptions:
        return None
    (form,) = spelling.texts
    if form.never or not form.before:
        return None
    return f" {form.before}".encode(), frozenset(form.characters or ())


def check_grammar(grammar: str, *, schema: str, attribute: Attribute) -> None:
    """Raises SchemaError, with class and field, for a grammar that no text meets or that fails.

    llguidance is imported here: compiling without constraints does without it.
    """
    from llguidance import LLMatcher

    matcher = LLMatcher(
        _byte_tokenizer(),
        LLMatcher.grammar_from_lark(grammar),
        log_level=0,
        limits=parser_limits(),
    )
    conditions = ", ".join(f"{keyword} {value!r}" for keyword, value in attribute.constraints)
    if matcher.is_error():
        subject = f"its conditions ({conditions})" if conditions else f"its {attribute.kind} type"
        reason = matcher.get_error().strip().partition("\n")[0]
        raise SchemaError(
            schema,
            attribute.name,
            f"{subject} cannot be turned into a grammar; simplify it, or check it in a validator "
            f"instead ({reason})",
        )
    if not any(matcher.compute_bitmask()) or matcher.is_error():
        raise SchemaError(
            schema, attribute.name, f"no value satisfies its conditions ({conditions})"
        )


@lru_cache(maxsize=1)
def _byte_tokenizer() -> Any:
    from llguidance import LLTokenizer

    return LLTokenizer("byte")  # takes 20 ms


def parser_limits() -> Any:
    """llguidance's limits for slots: ten times its defaults.

    A unit is about 100 ns, spent once per state of the automaton. A mask takes 200 ms at worst, for
    a pattern that is found anywhere in a text of limited length.
    """
    from llguidance import LLParserLimits

    return LLParserLimits(initial_lexer_fuel=10_000_000, step_lexer_fuel=2_000_000)


def spelling_of(output_format: OutputFormat) -> Spelling | None:
    """The spelling of a format's texts; None for a format without a spelling."""
    # The protocol lacks it, so that users' formats need not have it.
    spelling: Callable[[], Spelling | None] | None = getattr(output_format, "spelling", None)
    return spelling() if spelling is not None else None


def _enforces(attribute: Attribute, keyword: str, value: Any) -> bool:
    """True if the grammar enforces the condition; validation enforces all others."""
    if keyword in LIST_KEYWORDS:
        return bool(value <= _MOST_COUNTED_ITEMS)
    if attribute.is_text and keyword == "pattern":
        return is_supported(value)
    if attribute.is_text and keyword in _LENGTH_KEYWORDS:
        has_pattern = any(word == "pattern" for word, _ in attribute.constraints)
        longest = _LONGEST_COUNTED_OF_PATTERN if has_pattern else _LONGEST_COUNTED
        return bool(value <= longest)
    return keeps(attribute.kind, keyword, value)


class _Value:
    """The terminals of one attribute's values in one format."""

    def __init__(
        self,
        attribute: Attribute,
        output_format: OutputFormat,
        spelling: Spelling,
        literals: bool,
    ) -> None:
        self.attribute = attribute
        self.literals = literals
        self.format = output_format
        self.spelling = spelling
        self.conditions = [
            (keyword, value)
            for keyword, value in attribute.constraints
            if _enforces(attribute, keyword, value)
        ]

    def items(self) -> list[str]:
        """All ways to write a value, or an item of a list."""
        variants = self.attribute.variants
        return [way for variant in variants for way in self._of(variant).values()]

    def values(self) -> Iterator[str]:
        """Yields all ways to write a value of the attribute's kind, which is no union."""
        scalar, kind = self.attribute.scalar, self.attribute.kind
        if kind == "boolean":
            yield from self.words((True, False))
            yield from () if self.literals else self.words(spellings())
        elif kind == "enum":
            # A number among choices may be written as a number, and as text.
            choices = (*self.attribute.choice_values, *self.attribute.choices)
            yield from dict.fromkeys(self.words(choices))
        elif kind in ("integer", "number"):
            yield self.around(5, number(kind, self.conditions))
        elif kind == "date":
            yield self.around(date(2026, 12, 31), days(self.conditions))
        elif kind == "datetime":
            zone = dict(self.conditions).get("tz_constraint")
            yield self.around(datetime(2026, 12, 31), moments(zone))
            if zone != "aware":  # a bare date is midnight, without a zone
                yield self.around(date(2026, 12, 31), days(()))
        elif kind == "duration":
            yield self.around("PT2H30M", f"/{DURATION}/")
        elif isinstance(scalar, Code):
            yield self.around(scalar.samples[0], f"/{'|'.join(sorted(scalar.codes()))}/")
        else:
            yield from self.texts()

    def texts(self) -> Iterator[str]:
        forms = self.spelling.items if self.attribute.is_list else self.spelling.texts
        yield from (self.text(form) for form in forms)
        yield from self.words(filter(self.is_met, self.spelling.exceptions))

    def words(self, values: Iterable[Any]) -> Iterator[str]:
        return (_exactly(self.literal(value)) for value in values)

    def _of(self, attribute: Attribute) -> _Value:
        return _Value(attribute, self.format, self.spelling, self.literals)

    def lists(self) -> Iterator[str]:
        if self.attribute.positions:
            places = [any_of(self._of(place).items()) for place in self.attribute.places]
            inside = f" {_exactly(self.spelling.separator)} ".join(places)
            yield f"{_exactly(self.spelling.opening)} {inside} {_exactly(self.spelling.closing)}"
            return
        fewest, most = limits_of(self.conditions, "Items")
        if fewest == 0:
            yield _exactly(_bare(self.format.escape([])))
        if most == 0 or (most is not None and most < fewest):
            return
        spelling = self.spelling
        more = ""
        if most != 1:
            upper = "" if most is None else most - 1
            more = f"({_exactly(spelling.separator)} ITEM){{{max(fewest - 1, 0)},{upper}}}"
        yield f"{_exactly(spelling.opening)} ITEM {more} {_exactly(spelling.closing)}"
        if spelling.alone and fewest <= 1:
            yield f"{_exactly(spelling.opening)} ITEM {_exactly(spelling.alone + spelling.closing)}"

    def text(self, form: Form) -> str:
        """The terminal of texts in a form: all conditions at once, over the text as written."""
        write = writer(form)
        patterns = [value for keyword, value in self.conditions if keyword == "pattern"]
        fewest, most = limits_of(self.conditions, "Length")
        if most is not None and most < fewest:
            return NEVER
        times = (
            f"{{{fewest},{'' if most is None else most}}}" if (fewest, most) != (0, None) else "*"
        )
        terminals = [_regex(f"{write(ANY)}{times}")]
        terminals += [_regex(spelled_pattern(pattern, write)) for pattern in patterns]
        if form.never:
            terminals.append(f"~{_regex('|'.join(f'(?:{never})' for never in form.never))}")
        return f"{_exactly(form.before)} {all_of(terminals)} {_exactly(form.after)}"

    def is_met(self, text: str) -> bool:
        fewest, most = limits_of(self.conditions, "Length")
        patterns = [value for keyword, value in self.conditions if keyword == "pattern"]
        is_long = fewest <= len(text) and (most is None or len(text) <= most)
        return is_long and all(is_found(pattern, text) for pattern in patterns)

    def literal(self, value: Writable) -> str:
        """Writes a value as `escape` does; for a list, an item without the list around it."""
        if not self.attribute.is_list:
            return _bare(self.format.escape(value))
        spelling = self.spelling
        inside = _bare(self.format.escape([value]))  # type: ignore[list-item]  # a scalar
        inside = inside.removeprefix(spelling.opening).removesuffix(spelling.closing)
        return inside.removesuffix(spelling.alone)

    def around(self, sample: Any, terminal: str) -> str:
        """A terminal within what `escape` puts around a value like `sample`: quotes, or nothing."""
        text = sample.isoformat() if isinstance(sample, date) else str(sample)
        before, _, after = self.literal(sample).partition(text)
        return f"{_exactly(before)} {terminal} {_exactly(after)}"


def _bare(literal: str) -> str:
    return literal.removeprefix(" ")


def _exactly(text: str) -> str:
    """A string in the Lark dialect, which writes strings as JSON does."""
    return json.dumps(text)


def _regex(source: str) -> str:
    """A regular expression in the Lark dialect: on one line, between slashes."""
    return f"/{_UNSAFE.sub(_safe, source)}/"


_UNSAFE = re.compile(r"\\.|[/\x00-\x1f\x7f]", re.DOTALL)


def _safe(match: re.Match[str]) -> str:
    character = match[0][-1]
    is_safe = len(match[0]) == 2 and character not in "/\n\r"
    return match[0] if is_safe else f"\\x{{{ord(character):x}}}"


# --- JSON Schema of whole outputs, for servers that constrain outputs by it ----------------------


def output_schema(attributes: Sequence[Attribute]) -> dict[str, Any]:
    """The JSON Schema of an output, under the names that the prompt shows.

    All properties are required, and nullable where a value may be missing. Conditions are left to
    validation, since servers differ in those that they support.
    """
    root = _object()
    for attribute in attributes:
        group = root
        for label in attribute.labels[:-1]:
            group = _member(group, label, _object())
        _member(group, attribute.labels[-1], _value_schema(attribute))
    return root


def _object() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def _member(group: dict[str, Any], label: str, schema: dict[str, Any]) -> dict[str, Any]:
    if label not in group["properties"]:
        group["properties"][label] = schema
        group["required"].append(label)
    member: dict[str, Any] = group["properties"][label]
    return member


def _scalar(attribute: Attribute) -> dict[str, Any]:
    if attribute.choices:
        return {"type": "string", "enum": list(attribute.choices)}
    kind, form = SCALARS[attribute.kind].output
    return {"type": kind} | ({"format": form} if form else {})


def _value_schema(attribute: Attribute) -> dict[str, Any]:
    if attribute.fields:
        schema = output_schema(attribute.fields)
    else:
        variants = list(map(_scalar, attribute.variants))
        schema = {"anyOf": variants} if attribute.members else variants[0]
    if attribute.is_list:
        schema = {"type": "array", "items": schema}
    if attribute.may_be_null:
        schema = {"anyOf": [schema, {"type": "null"}]}
    return schema | ({"description": attribute.description} if attribute.description else {})
