"""What tests of constrained decoding have in common: schemas, loops, and a plain forward pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from conftest import TITLES
from decoding import Outputs, outputs_of
from families import FORK
from grammar_walks import allowed_by
from pydantic import AwareDatetime, BaseModel, Field

from schemax.attributes import attr, compile_attributes
from schemax.compiler import CompiledSchema, TextCodec
from schemax.extraction.schema import AttrSchema
from schemax.formats import OutputFormat
from schemax.results import SlotText, build
from schemax.runtime.engine.fork import ForkModel
from schemax.runtime.engine.self_test import prepare
from schemax.tokens import DONE, PromptIds, SlotSpec, StopTable

TEMPLATE = "Read.\n{% for d in documents %}{{ d.text }}\n{% endfor %}"
_ENDS = (b'"', b",", b"\n", b"}", b"]", b"<", b"/", b":", b"#")
NASTY = ("a", "ab", "abc", "null", "", 'q"x', "a, b", "a\nb", "\U0001f600", "é |", "- 5", "x" * 30)


def strictly(schema: type[BaseModel]) -> type[BaseModel]:
    """The schema with `attr(strict=True)` for every field."""
    own = vars(schema).get("__schema_settings__", {})
    made = type(schema)(schema.__name__, (schema,), {"__module__": schema.__module__}, **own)
    for field in made.model_fields.values():
        extra = field.json_schema_extra
        field.json_schema_extra = {**(extra if isinstance(extra, dict) else {}), "strict": True}
    return made


class Colour(Enum):
    RED = "red"
    DARK_RED = "dark red"
    SEVEN = 7


class Everything(BaseModel):
    """Every type, with budgets that most random values fit in."""

    text: str = attr(k_max=12)
    short: str | None = Field(max_length=4)
    code: str = Field(pattern=r'^[A-Z&"|]{2,3}-?\d+$')
    found: str | None = Field(None, pattern="[:#] ?x", max_length=8)
    count: int
    small: int = Field(ge=-7, lt=120)
    ratio: float | None
    price: Decimal = Field(max_digits=5, decimal_places=2)
    flag: bool
    day: date
    recent: date | None = Field(gt=date(2019, 8, 30), le=date(2024, 2, 29))
    at: datetime
    aware: AwareDatetime | None
    choice: Literal[NASTY]  # type: ignore[valid-type]
    number: Literal[5, 50, 2.5, True]
    colour: Colour | None
    counts: set[int]
    days: list[date] = Field(min_length=1, max_length=2)
    choices: list[Literal[NASTY]] = Field(max_length=2)  # type: ignore[valid-type]


class Forced(AttrSchema):
    """Values whose tokens mostly follow from those before them."""

    only: Literal["the one and only choice"]
    common: Literal["a long beginning, then x", "a long beginning, then y"] | None
    middle: Literal["red, then something long, red", "blue, then something long, blue"]
    flag: bool
    odd: Literal['"\U0001f600" and, so on', '"\U0001f600" and, so forth']
    size: float | None = attr(k_max=6)
    brand: str | None = attr(k_max=5)


@cache
def alone(schema: type[BaseModel], field: str) -> type[BaseModel]:
    info = schema.model_fields[field]
    return type("Alone", (BaseModel,), {"__annotations__": {field: info.annotation}, field: info})


def faults(schema: type[BaseModel], field: str, raw: str, output: OutputFormat) -> Any:
    """What is wrong with a value; empty if it parses and validates."""
    one = alone(schema, field)
    slot = SlotText(raw, "stop", 1, complete=True)
    item = build(one, compile_attributes(one), [slot], output, index=0, document_id=None)
    return item.errors if item.value is not None else item.errors or "no instance"


# --- loops --------------------------------------------------------------------------------------


def in_stream(model: Any, compiled: CompiledSchema, texts: Sequence[str]) -> Outputs:
    return [output.slots for output in outputs_of(model, compiled, texts)]


@cache
def forked(codec: TextCodec) -> ForkModel:
    (family,) = [family for family in FORK if family.name == "bloom"]
    model = prepare(family.model(codec.vocab_size))
    assert isinstance(model, ForkModel)
    return model


def in_forks(_: Any, compiled: CompiledSchema, texts: Sequence[str]) -> Outputs:
    return in_stream(forked(compiled.codec), compiled, texts)


LOOPS: dict[str, Callable[..., Outputs]] = {
    "stream": in_stream,
    "forks": in_forks,
}


# --- an oracle ----------------------------------------------------------------------------------


def head_of(prompt: PromptIds, slot: int) -> list[int]:
    """All that a slot of a lone, branched document reads before its value."""
    return [*prompt.instruction, *prompt.documents[0], *prompt.opening, *prompt.keys[0][slot]]


@torch.inference_mode()
def teacher_forced(model: Any, head: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
    """(K, V) float64 logits of the tokens of a value, in one plain forward pass."""
    tokens = torch.tensor([[*head, *ids]])
    logits: torch.Tensor = model.model(input_ids=tokens, use_cache=False).logits[0]
    return logits[len(head) - 1 : -1].double()


def allowed_after(spec: SlotSpec, ids: Sequence[int]) -> list[int]:
    """What a strict grammar allows behind some tokens, by a matcher of its own."""
    assert spec.grammar is not None
    matcher = spec.grammar.new_matcher()
    assert matcher.consume_tokens(list(ids))
    first = () if ids else spec.grammar.not_first()
    return [token for token in allowed_by(matcher) if token not in first]


def walk(spec: SlotSpec, stop: StopTable, codec: TextCodec, chance: random.Random) -> list[int]:
    """Random tokens that the grammar allows, to where the slot ends, which it likes to do.

    None at all if that takes long.
    """
    assert spec.grammar is not None
    matcher, state = spec.grammar.new_matcher(), 0
    has_text, ends = _kinds_of_tokens(codec)
    ids: list[int] = []
    while len(ids) < 80:
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        assert len(allowed), (codec.decode_bytes(ids), matcher.get_error())
        assert allowed.max() < len(has_text)
        assert has_text[allowed].all(), codec.decode_bytes(ids)
        if chance.random() < 0.5 and ends[allowed].any():
            allowed = allowed[ends[allowed]]
        token = int(chance.choice(allowed))
        assert matcher.try_consume_tokens([token]) == 1
        ids.append(token)
        state = int(stop.next_state[state, token])
        if state == DONE:
            return ids
    return []


@cache
def _kinds_of_tokens(codec: TextCodec) -> tuple[Any, Any]:
    """Which tokens have any text, and which begin as what ends a value does."""
    table = codec.token_bytes
    ends = np.array([data[:1] in _ENDS for data in table])
    return np.array([bool(data) for data in table]), ends


DOCUMENTS = [*TITLES, "", "Fjällräven Kånken \U0001f392, </product> & \u2028 more"]
