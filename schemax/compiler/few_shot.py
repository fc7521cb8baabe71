"""Few-shot examples: documents with their right values, written as the model writes outputs.

A demonstration of another category may lead a schema without examples: it shows the form of an
answer. It precedes the instruction as turns of the chat. It has other attributes than the schema,
so that it gives no answer away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import to_jsonable_python

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.attributes.classes import is_instance, is_typed_dict, validated, value_in
from schemax.attributes.discriminator import MemberName, choice_of
from schemax.base.messages import clipped, one_line
from schemax.compiler.prompt import PromptText, ShownExample, render_chat, takes_turns
from schemax.compiler.skeleton import Rows, as_decoded, render_values
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.errors import InputError, SchemaError
from schemax.formats import DocumentKey, OutputFormat, Scalar, Writable


@dataclass(frozen=True, slots=True)
class SomeValues:
    """Values of some attributes, by dotted names; the keys of other attributes are not shown."""

    values: Mapping[str, Any]


FewShotExample: TypeAlias = tuple[str | Mapping[str, Any], Any]
"""A document, and an instance of the schema; or a mapping that becomes one, or `SomeValues`."""


FewShotExamples: TypeAlias = Sequence[FewShotExample] | Mapping[str, Sequence[FewShotExample]]
"""The examples of one schema, or of several schemas by category."""


def read_few_shot_examples(
    examples: FewShotExamples | None,
    schemas: Mapping[str, type[Any]],
    mixed: bool,
    read: Callable[[Any], str],
) -> dict[str, list[FewShotExample]]:
    """Reads examples, with the texts of their documents, by the names of their schemas.

    mixed: whether there may be several schemas. read: returns a document's text, or raises
    ValueError. Raises InputError, which names the example.
    """
    if examples is None or examples == ():
        return {}
    if isinstance(examples, Mapping) is not mixed:
        wanted = "lists by category, as schemas are" if mixed else "a list for a single schema"
        raise InputError(f"examples must be {wanted}, not {type(examples).__name__}")
    by_name = examples if isinstance(examples, Mapping) else dict.fromkeys(schemas, examples)
    if strange := [name for name in by_name if name not in schemas]:
        known = ", ".join(map(repr, schemas))
        raise InputError(f"examples of the unknown category {strange[0]!r}; known are {known}")
    read_examples: dict[str, list[FewShotExample]] = {}
    for name, pairs in by_name.items():
        read_examples[name] = []
        for place, (document, values) in enumerate(_pairs(pairs, schemas[name])):
            try:
                read_examples[name].append((read(document), values))
            except ValueError as error:
                raise _misfit(schemas[name], pairs, place, str(error)) from None
    return read_examples


def written_examples(
    examples: Sequence[FewShotExample],
    schema: type[Any],
    output_format: OutputFormat,
    config: DecodingConfig,
) -> tuple[ShownExample, ...]:
    """Examples as templates show them: texts as they are, values as an output of that format.

    Where outputs name their document, the ids of examples are "X1", "X2", ..., which no document
    has.

    Raises InputError, naming the example, for a document that is not text, and for values that are
    not of the schema; SchemaError for lists that the decoding cannot write.
    """
    attributes = as_decoded(schema.__name__, compile_attributes(schema), config, output_format)
    for attribute in attributes:
        if attribute.fields and not attribute.two_phase:
            reason = "examples of lists of nested models are shown in the layout 'branched' alone"
            raise SchemaError(schema.__name__, attribute.name, reason)
    stacked = config.documents == "stacked"
    shown = []
    for place, (text, values) in enumerate(_pairs(examples, schema)):
        if not isinstance(text, str):
            reason = f"its document must be text, not {type(text).__name__}"
            raise _misfit(schema, examples, place, reason)
        id = f"X{place + 1}" if stacked else None
        head = (DocumentKey(id),) if id else ()
        try:
            shown_of, literals = _literals(values, schema, attributes)
            output = render_values(shown_of, output_format, literals, head)
        except (TypeError, ValueError) as error:  # Pydantic's are ValueErrors, too
            raise _misfit(schema, examples, place, _reason_of(error)) from error
        shown.append(ShownExample(text, id, output))
    return tuple(shown)


def _literals(
    values: Any, schema: type[Any], attributes: Sequence[Attribute]
) -> tuple[Sequence[Attribute], list[Writable | Rows]]:
    """The attributes that an example shows, and their values."""
    if isinstance(values, SomeValues):
        shown = [attribute for attribute in attributes if attribute.name in values.values]
        return shown, [writable(attribute, values.values[attribute.name]) for attribute in shown]
    instance = _instance_of(values, schema)
    return attributes, [writable_of(attribute, instance) for attribute in attributes]


_SEVERAL = (list, tuple, set, frozenset, deque)


def _pairs(examples: Any, schema: type[Any]) -> Sequence[tuple[Any, Any]]:
    if not isinstance(examples, Sequence) or isinstance(examples, (str, bytes)):
        raise InputError(
            f"{schema.__name__}: examples must be a list of (document, instance), "
            f"not {type(examples).__name__}"
        )
    for place, pair in enumerate(examples):
        if not isinstance(pair, tuple) or len(pair) != 2:
            form = f"a tuple of {len(pair)}" if isinstance(pair, tuple) else type(pair).__name__
            reason = f"must be a tuple (document, instance), not {form}"
            raise _misfit(schema, examples, place, reason)
    return examples


def _misfit(schema: type[Any], examples: Sequence[Any], place: int, reason: str) -> InputError:
    """The error of an example, or of a demonstration that the class declares."""
    declared = settings_of(schema).demonstrations or ()
    is_declared = any(examples[place] is demonstration for demonstration in declared)
    name = "demonstrations" if is_declared else "examples"
    return InputError(f"{schema.__name__}: {name}[{place}]: {reason}")


def too_long(
    schema: type[Any], examples: Sequence[FewShotExample], place: int, problem: str | None
) -> InputError:
    """The error for the first example with which a prompt, without a document, is too long."""
    text = clipped(repr(examples[place][0]))
    reason = f"from this example on, {text}, the prompt {problem}; give fewer or shorter examples"
    return _misfit(schema, examples, place, reason)


def _instance_of(values: Any, schema: type[Any]) -> Any:
    if not is_typed_dict(schema) and isinstance(values, schema):
        return values
    if not isinstance(values, Mapping):
        raise TypeError(f"expected {schema.__name__}, got {type(values).__name__}")
    # Extra keys are errors: a misspelt name would otherwise be an example of null.
    return validated(schema, dict(values), extra="forbid", by_alias=True, by_name=True)


def _reason_of(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return one_line(error)
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        ": ".join(filter(None, (".".join(map(str, detail["loc"])), detail["msg"])))
        for detail in details
    )


def writable_of(attribute: Attribute, instance: Any) -> Writable | Rows:
    """The value of a leaf of an instance, as formats write it."""
    value = _stated(instance, attribute.path[: len(attribute.path) - attribute.is_discriminator])
    if attribute.is_discriminator:
        choice = None if value is None else choice_of(value, attribute)
        return _scalar(attribute, choice)
    return writable(attribute, value)


def writable(attribute: Attribute, value: Any) -> Writable | Rows:
    """A leaf's value as formats write it."""
    if attribute.is_one_or_several and value is not None and not isinstance(value, _SEVERAL):
        value = [value]
    if attribute.is_mapping and value is not None:
        value = [{"key": key, "value": item} for key, item in value.items()]
    if attribute.fields:
        rows = [
            [writable_of(leaf, _bare(item)) for leaf in attribute.fields] for item in value or ()
        ]
        return rows or None
    if value is None or not attribute.is_list:
        return _scalar(attribute, value)
    items = [_scalar(attribute, item) for item in value]
    if isinstance(value, (set, frozenset)):
        items.sort(key=str)  # the order of a set differs between processes
    return items or None  # no items are null: the document states none


def _stated(instance: Any, path: Sequence[str]) -> Any:
    """The value at a path; None for a field left to its default, since null stands for defaults."""
    node: Any = instance
    for name in path:
        node = _bare(node)
        if isinstance(name, MemberName):
            if not is_instance(node, name.model):
                return None
        elif isinstance(node, BaseModel) and name not in node.model_fields_set:
            return None
        else:
            node = value_in(node, name)
    return _bare(node)


def _bare(value: Any) -> Any:
    while isinstance(value, RootModel):
        value = value.root
    return value


def _scalar(attribute: Attribute, value: Any) -> Scalar:
    value = _bare(value)
    is_float = any(part.is_number and part.kind != "integer" for part in attribute.variants)
    if isinstance(value, float) and is_float and value.is_integer():
        # The text's 55 is 55.0 in a float field. Beyond 2 ** 53 not every digit is known.
        return int(value) if abs(value) <= 2**53 else value
    if value is None or isinstance(value, (str, int, float, Decimal, date, time)):
        return value
    if isinstance(value, Enum):
        return _scalar(attribute, value.value)
    scalar: Scalar = to_jsonable_python(value)  # such as a UUID, a URL or a duration
    return scalar


class _Hose(BaseModel):
    maker: str | None = None
    length: str | None = None
    surface: str | None = None
    warranty: str | None = None


_TEXT = "Wellbrook FlexPro garden hose, 20 m, orange, with two brass couplings"
_VALUES = {"maker": "Wellbrook", "length": "20 m"}

_QUESTION = """\
You read texts about items of one category, garden hose, and fill in their attributes.

Attributes:
{attributes}

Write null for an attribute that the text does not state. Do not guess. Answer in {format}.

<product>
{text}
</product>"""


def led(
    prompt: PromptText, output_format: OutputFormat, config: DecodingConfig, codec: TextCodec
) -> PromptText:
    """The prompt behind the demonstration; unchanged if it has turns, or the model takes none."""
    if prompt.turns or not takes_turns(codec):
        return prompt
    (shown,) = written_examples([(_TEXT, _VALUES)], _Hose, output_format, config)
    question = _QUESTION.format(
        attributes="\n".join(f"- {name}" for name in _Hose.model_fields),
        format=output_format.name.upper(),
        text=shown.text,
    )
    chat = render_chat(codec, [("user", question), ("assistant", shown.output.strip())])
    return replace(
        prompt,
        turns=chat.turns,
        instruction=prompt.instruction.lstrip(),
        closing=prompt.closing.rstrip(),
        chat_prefix=chat.prefix,
        chat_suffix=chat.suffix,
    )
