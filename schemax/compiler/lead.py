"""A demonstration of another category, which shows a model what an answer looks like.

It precedes the instruction as turns of the chat. Its attributes are none of the schema's, so that
it gives no answer away.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel

from schemax.compiler.conversation import render_chat, takes_turns
from schemax.compiler.few_shot import written_examples
from schemax.compiler.prompt import PromptText
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.formats import OutputFormat


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
        chat_prefix=chat.markup[-1],
        chat_suffix=chat.suffix,
    )
