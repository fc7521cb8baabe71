"""Few-shot examples: documents with their right values, written as the model writes outputs.

A demonstration of another category may lead a schema without examples: it shows the form of an
answer. It precedes the instruction as turns of the chat. It has other attributes than the schema,
so that it gives no answer away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from schemax.attributes import compile_attributes
from schemax.compiler.prompt import PromptText, ShownExample, render_chat, takes_turns
from schemax.compiler.skeleton import as_decoded, render_values
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.errors import SchemaError
from schemax.formats import DocumentKey, OutputFormat, Path


def written_examples(
    examples: Sequence[tuple[str, Mapping[Path, Any]]],
    schema: type[Any],
    output_format: OutputFormat,
    config: DecodingConfig,
) -> tuple[ShownExample, ...]:
    """Examples as templates show them: texts as they are, values as an output of that format.

    Where outputs name their document, the ids of examples are "X1", "X2", ..., which no document
    has. examples: (text, values by path) as of `example_values`; attributes without a value are
        left out.

    Raises SchemaError for lists that the decoding cannot write.
    """
    attributes = as_decoded(schema.__name__, compile_attributes(schema), config, output_format)
    for attribute in attributes:
        if attribute.fields and not attribute.two_phase:
            reason = "examples of lists of nested models are shown in the layout 'branched' alone"
            raise SchemaError(schema.__name__, attribute.name, reason)
    examples_shown = []
    for number, (text, values) in enumerate(examples, 1):
        id = f"X{number}" if config.documents == "stacked" else None
        shown = [attribute for attribute in attributes if attribute.path in values]
        output = render_values(
            shown,
            output_format,
            [values[attribute.path] for attribute in shown],
            (DocumentKey(id),) if id else (),
        )
        examples_shown.append(ShownExample(text, id, output))
    return tuple(examples_shown)


class _Hose(BaseModel):
    maker: str | None = None
    length: str | None = None
    surface: str | None = None
    warranty: str | None = None


_TEXT = "Wellbrook FlexPro garden hose, 20 m, orange, with two brass couplings"
_VALUES = {("maker",): "Wellbrook", ("length",): "20 m", ("surface",): None, ("warranty",): None}

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
