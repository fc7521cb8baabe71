"""The prompt: a Jinja template, rendered once per category and cut at the documents.

A template is rendered with sentinels in the places of the documents' texts (and, inside the
tokenizer's chat template, of the whole message) and cut there. Document text therefore never
passes through Jinja, and what stands before the first document is the same for all documents.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
from pydantic import BaseModel

from schemax.attributes import Attribute, compile_attributes
from schemax.base.messages import warn
from schemax.base.resources import resource_dir
from schemax.compiler import sandbox
from schemax.compiler.skeleton import as_decoded, leaves_of_item, render_values, slot_attribute
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig, decoding_name
from schemax.errors import ModelError, SchemaError, TemplateError
from schemax.formats import DocumentKey, OutputFormat
from schemax.reading.kinds import SCALARS


@dataclass(frozen=True, slots=True)
class Conversation:
    """(role, content) of the messages before the document, in the place of a template.

    The document is the last message, of the user. Contents are data, as documents are: no text in
    them becomes a control token.
    """

    messages: tuple[tuple[str, str], ...] = ()


TemplateLike = str | Path | jinja2.Template | Conversation

DEFAULT_TEMPLATE = "verbatim"
_OF_PRESETS = {"paper": "paper"}


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A document as templates see it: `text`, and `id` where several share a prompt, else None."""

    text: str
    id: str | None


@dataclass(frozen=True, slots=True)
class ShownExample:
    """An example as templates see it: a document, and its right `output`.

    id: as a document's; the output holds it as well.
    """

    text: str
    id: str | None
    output: str


@dataclass(frozen=True, slots=True)
class ShownAttribute:
    """An attribute as templates see it."""

    name: str
    description: str | None
    type: str
    examples: tuple[str, ...]
    choices: tuple[str, ...]
    nullable: bool


@dataclass(frozen=True, slots=True)
class PromptText:
    """A rendered prompt, cut at the documents.

    instruction: everything before the first document's text.
    pieces: per document, the literals around its mentions; its text goes between two neighbours.
        Most templates mention a document once: ("", ""), and from the second on (separator, "").
    closing: everything after the last document.
    chat: the messages before the document's, and the chat template's text around that.
    fence: the closing tag that ends a document, as in `</product`, or None.
    control_tokens: special tokens that the template spells; they are encoded as plain text.
    """

    instruction: str
    pieces: tuple[tuple[str, ...], ...]
    closing: str
    chat: RenderedChat
    fence: str | None = None
    control_tokens: tuple[str, ...] = ()


def template_names() -> tuple[str, ...]:
    """The templates that come with the package."""
    return tuple(sorted(path.stem for path in resource_dir("templates").glob("*.jinja")))


def load_template(template: str | Path | jinja2.Template) -> jinja2.Template:
    """Compiles a template in the sandbox: a name in `templates/`, a path, or the text itself.

    A `jinja2.Template` is trusted and returned as it is. Raises TemplateError.
    """
    if isinstance(template, jinja2.Template):
        return template
    try:
        return sandbox.from_text(template_source(template), jinja2.StrictUndefined)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"template, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise TemplateError(f"template cannot be used: {error}") from error


def render_prompt(
    template: TemplateLike,
    *,
    category: str,
    attributes: Sequence[Attribute],
    format_name: str,
    keys_given: bool,
    num_documents: int | None,
    codec: TextCodec,
    examples: Sequence[ShownExample] = (),
) -> PromptText:
    """Renders the prompt of a category, or of a caller's messages.

    Examples are turns where the chat template takes turns: the variable `turns` says so, and
    `turn(role)` begins a message. Text before the first turn is a message of the user.

    keys_given: False for the autoregressive layout, where the model writes the keys itself.
    num_documents: J for stacked documents, which are told apart by ids "1" to "J"; None for
        isolated ones, whose prompt is rendered for a single document without an id.
    examples: the instruction shows them, their texts cleaned as documents are. A template may leave
        them out by `leave_out_examples(reason)`, which warns.

    Raises TemplateError for a template that fails, or that does not show every example, then, in a
    last message of the user, every document in order.
    """
    if isinstance(template, Conversation):
        if num_documents is not None or examples:
            raise TemplateError("a conversation holds one document, and its own examples")
        return _render_conversation(template, codec)
    marker = f"\ue000{uuid.uuid4().hex}"
    count = num_documents or 1
    documents = [
        ShownDocument(f"{marker}-{j}\ue001", str(j + 1) if num_documents else None)
        for j in range(count)
    ]
    reasons: list[str] = []
    roles: list[str] = []

    def turn(role: str) -> str:
        if codec.chat_template is None:
            return ""
        roles.append(role)
        return f"{marker}-turn{len(roles) - 1}\ue001"

    compiled = load_template(template)
    variables = {
        "category": category,
        "attributes": [shown for attribute in attributes for shown in _shown_attributes(attribute)],
        "documents": documents,
        "examples": [
            ShownExample(f"{marker}-text{n}\ue001", example.id, f"{marker}-output{n}\ue001")
            for n, example in enumerate(examples)
        ],
        "format": format_name,
        "keys_given": keys_given,
        "chat": codec.chat_template is not None,
        "turns": bool(examples) and num_documents is None and takes_turns(codec),
        "turn": turn,
        "leave_out_examples": reasons.append,
    }
    is_trusted = isinstance(template, jinja2.Template)
    try:
        with nullcontext() if is_trusted else sandbox.deadline():
            text = compiled.render(variables)
    except jinja2.TemplateError as error:
        raise TemplateError(f"template cannot be rendered: {error}") from error
    except Exception as error:  # a template may raise anything
        raise TemplateError(f"template failed: {type(error).__name__}: {error}") from error
    if reasons:
        warn(f"examples are not shown: {reasons[0]}")
        examples = ()
    parts = re.split(re.escape(marker) + r"-(\d+)\ue001", text)
    literals, order = parts[0::2], [int(j) for j in parts[1::2]]
    if order != sorted(order) or set(order) != set(range(count)):
        raise TemplateError(
            "a template must show the text of every document, in order: "
            "{% for document in documents %}{{ document.text }}{% endfor %}"
        )
    pieces = []
    for j in range(count):
        places = [place for place, shown in enumerate(order) if shown == j]
        # The separator of two documents belongs to the later one.
        head = literals[places[0]] if j else ""
        pieces.append((head, *(literals[place] for place in places[1:]), ""))
    if any(f"{marker}-turn" in literal for literal in literals[1:]):
        raise TemplateError("a template must show all documents in its last message")
    if any(marker in literal for literal in literals[1:]):
        raise _examples_not_shown()
    messages = _messages(_with_examples(literals[0], marker, examples), marker, roles)
    *before, (role, instruction) = messages
    if role != "user":
        raise TemplateError(
            f'the documents stand in a message of the role {role!r}; begin one with turn("user")'
        )
    return PromptText(
        instruction=instruction,
        pieces=tuple(pieces),
        # Behind turns, the document's message ends as the examples' messages do: stripped.
        closing=literals[-1].rstrip() if before else literals[-1],
        chat=render_chat(codec, before),
        fence=fence_before(literals[order.index(0) + order.count(0)]),
        control_tokens=codec.special_tokens_in("".join(literals)),
    )


def _messages(instruction: str, marker: str, roles: Sequence[str]) -> list[tuple[str, str]]:
    """(role, content) of the messages; the documents continue the last one."""
    first, *turns = re.split(re.escape(marker) + r"-turn(\d+)\ue001", instruction)
    messages = [("user", first)]
    messages += [(roles[int(n)], text) for n, text in zip(turns[::2], turns[1::2], strict=True)]
    # The document follows the last content directly; all contents before it are stripped.
    *whole, (last_role, last) = messages
    stripped = [(role, content.strip()) for role, content in whole]
    kept = [message for place, message in enumerate(stripped) if place or message[1]]
    return [*kept, (last_role, last.lstrip() if kept else last)]


def _with_examples(instruction: str, marker: str, examples: Sequence[ShownExample]) -> str:
    """The instruction with the examples' texts and outputs in the places of their sentinels."""
    parts = re.split(re.escape(marker) + r"-(text|output)(\d+)\ue001", instruction)
    kinds, numbers, literals = parts[1::3], [int(n) for n in parts[2::3]], parts[3::3]
    if len({*zip(kinds, numbers, strict=True)}) < 2 * len(examples):
        raise _examples_not_shown()
    filled = [parts[0]]
    for kind, number, literal in zip(kinds, numbers, literals, strict=True):
        example = examples[number]
        text = (
            clean_document(example.text, fence_before(literal))
            if kind == "text"
            else example.output
        )
        filled += [text, literal]
    return "".join(filled)


def _examples_not_shown() -> TemplateError:
    return TemplateError(
        "examples are given, so the template must show text and output of each of them, before "
        "the documents: {% for example in examples %}{{ example.text }} {{ example.output }}"
        "{% endfor %}"
    )


def fence_before(literal: str) -> str | None:
    """The closing tag with which the text behind a document begins, if any."""
    tag = re.match(r"\s*(</[\w:.-]+)", literal)
    return tag[1] if tag else None


def _render_conversation(conversation: Conversation, codec: TextCodec) -> PromptText:
    """The prompt of a caller's messages; a base model gets their contents alone."""
    messages = [(role, clean_document(text, None)) for role, text in conversation.messages]
    if codec.chat_template is None:
        instruction = "".join(f"{content}\n\n" for _, content in messages)
        return PromptText(instruction, (("", ""),), "\n\n", RenderedChat())
    return PromptText("", (("", ""),), "", render_chat(codec, messages))


def clean_document(text: str, fence: str | None) -> str:
    """Makes a document's text safe to stand in a prompt.

    Lone surrogates, which no tokenizer can encode, become U+FFFD. The closing tag of the element
    that holds the document is defused, so that a document cannot end itself.
    """
    # Through UTF-16, which joins two halves of one character first.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = text.strip()
    if fence and fence[:2] in text:
        text = re.sub(re.escape(fence), lambda m: "&lt;" + m[0][1:], text, flags=re.IGNORECASE)
    return text


def usual_template(config: DecodingConfig) -> str:
    """The default template of the preset nearest to the decoding."""
    return _OF_PRESETS.get(decoding_name(config).partition(":")[0], DEFAULT_TEMPLATE)


def _is_template_text(text: str) -> bool:
    """True if a string is the text of a template, not the name of one."""
    return "{{" in text or "{%" in text or "\n" in text


def read_template(template: TemplateLike) -> TemplateLike:
    """The template with its text in the place of a name or a path, so that an edit shows."""
    if isinstance(template, (jinja2.Template, Conversation)):
        return template
    source = template_source(template)
    return source if _is_template_text(source) else f"{source}\n"


def template_source(template: str | Path) -> str:
    """The text of a template that is given by name, by path, or as text.

    Raises TemplateError for an unknown template.
    """
    text = str(template)
    if isinstance(template, str) and _is_template_text(text):
        return text
    named = resource_dir("templates") / f"{text}.jinja"
    if isinstance(template, str) and re.fullmatch(r"[\w-]+", text) and named.is_file():
        return named.read_text("utf-8")
    path = Path(text)
    if path.is_file():
        return path.read_text("utf-8")
    raise TemplateError(
        f"unknown template {text!r}: neither a file nor one of {', '.join(template_names())}"
    )


def _shown_attributes(attribute: Attribute) -> Iterator[ShownAttribute]:
    """Yields the attribute; for a list in two phases, its count and the attributes of an item."""
    shown = slot_attribute(attribute)
    description = attribute.description
    if attribute.two_phase:
        description = "how many there are; each of them is then asked for under its number"
    yield ShownAttribute(
        name=" > ".join(shown.labels),
        description=description,
        type=_type_name(shown),
        examples=shown.examples,
        choices=shown.choices,
        nullable=shown.nullable,
    )
    if attribute.two_phase:
        # "colors 1, colors 2, ..."
        numbers = f"1, {attribute.label} 2, ..."
        for leaf in leaves_of_item(attribute, numbers):
            yield from _shown_attributes(leaf)
    else:
        for leaf in attribute.fields:
            yield from _shown_attributes(replace(leaf, labels=(*attribute.labels, *leaf.labels)))


def _type_name(attribute: Attribute) -> str:
    if attribute.positions:
        return f"list of {', '.join(map(_value_name, attribute.places))}, in this order"
    name = _value_name(attribute)
    if attribute.is_one_or_several:
        return f"{name}, or list of such"
    return f"list of: {name}" if attribute.is_list else name


def _value_name(attribute: Attribute) -> str:
    if not attribute.members:
        return attribute.scalar.shown if attribute.scalar else "object"
    names = (variant.choices or [SCALARS[variant.kind].shown] for variant in attribute.variants)
    return " or ".join(chain.from_iterable(names))


def control_token_warning(tokens: Iterable[str]) -> str:
    """The warning about special tokens that a template spells."""
    return (
        f"the prompt holds {', '.join(tokens)} as plain characters: a template's text is data, and "
        "the chat template writes the model's turns; take them out, and begin a turn with "
        '{{ turn("assistant") }}'
    )


# --- chat templates ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """Messages in a chat template; empty for a base model.

    turns: (markup, content) of all messages but the last. prefix, suffix: the markup around the
    last message. is_answer: False if the template does not show that an answer follows the suffix.
    """

    turns: tuple[tuple[str, str], ...] = ()
    prefix: str = ""
    suffix: str = ""
    is_answer: bool = True


def takes_turns(codec: TextCodec) -> bool:
    """True if the tokenizer's chat template shows answers between messages of the user."""
    if codec.chat_template is None:
        return False
    try:
        render_chat(codec, [("user", ""), ("assistant", "")])
    except TemplateError:
        return False
    return True


def render_chat(codec: TextCodec, messages: Sequence[tuple[str, str]] = ()) -> RenderedChat:
    """Renders the tokenizer's chat template, if any, around messages and a last one of the user.

    The suffix is what the template writes before a final answer, so that no thought is open. Raises
    ModelError for a chat template that fails on a single message or drops it, TemplateError for a
    chat template that does so with several.
    """
    if codec.chat_template is None:
        return RenderedChat()
    roles = [*(role for role, _ in messages), "user"]
    error_type = TemplateError if messages else ModelError
    remedy = (
        "send other roles, or fewer messages"
        if messages
        else "pass a tokenizer without chat_template to prompt it as a base model"
    )
    try:
        parts = _rendered_chat(codec, roles)
    except Exception as error:  # any model's template: whatever it raises names the same remedy
        shown = " messages of " + ", ".join(roles) if messages else " a single user message"
        raise error_type(
            f"the tokenizer's chat template fails on{shown} ({error}); {remedy}"
        ) from error
    if [int(n) for n in parts[1::2]] != list(range(len(roles))):
        dropped = "one of the messages" if messages else "the user's message"
        raise error_type(f"the tokenizer's chat template drops {dropped}; {remedy}")
    *markup, prefix, suffix = parts[0::2]
    contents = (content for _, content in messages)
    before_answer = _before_answer(codec, roles, suffix)
    if before_answer is None:
        warn(
            f"the chat template does not show how an answer begins: prompts end in {suffix!r}, "
            "where the model may mean to think first; pass a tokenizer whose chat_template does"
        )
    return RenderedChat(
        tuple(zip(markup, contents, strict=True)),
        prefix,
        suffix if before_answer is None else before_answer,
        before_answer is not None,
    )


def _before_answer(codec: TextCodec, roles: Sequence[str], suffix: str) -> str | None:
    """What the template writes between the last message and an answer; None if it shows no answer.

    suffix: the generation prompt with thinking turned off. It stays if it adds an empty thought.
    """
    try:
        parts = _rendered_chat(codec, [*roles, "assistant", "user"])
        place = 2 * parts[1::2].index(str(len(roles)))
        before_answer = parts[place]
        if parts[place - 1] != str(len(roles) - 1) or not before_answer:
            return None
        if suffix.startswith(before_answer) and suffix != before_answer:
            is_off = _rendered_chat(codec, roles, enable_thinking=True)[-1] != suffix
            return suffix if is_off else before_answer
    except Exception:  # any model's template
        return None
    return before_answer


def _rendered_chat(
    codec: TextCodec, roles: Sequence[str], *, enable_thinking: bool = False
) -> list[str]:
    """The chat template around messages: its literals and, between these, messages' numbers."""
    assert codec.chat_template is not None
    marker = f"\ue000{uuid.uuid4().hex}"
    template = sandbox.from_text(codec.chat_template, jinja2.Undefined)
    with sandbox.deadline():
        text = template.render(
            messages=[
                {"role": role, "content": f"{marker}-{n}\ue001"} for n, role in enumerate(roles)
            ],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            enable_thinking=enable_thinking,
            **codec.special_tokens,
        )
    return re.split(re.escape(marker) + r"-(\d+)\ue001", text)


# --- examples, and a demonstration of another category --------------------------------------------


def written_examples(
    examples: Sequence[tuple[str, Mapping[tuple[str, ...], Any]]],
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
_VALUES: Mapping[tuple[str, ...], str | None] = {
    ("maker",): "Wellbrook",
    ("length",): "20 m",
    ("surface",): None,
    ("warranty",): None,
}

_QUESTION = """\
You read texts about items of one category, garden hose, and fill in their attributes.

Attributes:
{attributes}

Write null for an attribute that the text does not state. Do not guess. Answer in {format}.

<product>
{text}
</product>"""


def with_generic_demonstration(
    prompt: PromptText, output_format: OutputFormat, config: DecodingConfig, codec: TextCodec
) -> PromptText:
    """The prompt behind a demonstration of garden hoses; unchanged if the prompt has turns, or the
    chat template takes none."""
    if prompt.chat.turns or not takes_turns(codec):
        return prompt
    (shown,) = written_examples([(_TEXT, _VALUES)], _Hose, output_format, config)
    question = _QUESTION.format(
        attributes="\n".join(f"- {name}" for name in _Hose.model_fields),
        format=output_format.name.upper(),
        text=shown.text,
    )
    return replace(
        prompt,
        instruction=prompt.instruction.lstrip(),
        closing=prompt.closing.rstrip(),
        chat=render_chat(codec, [("user", question), ("assistant", shown.output.strip())]),
    )
