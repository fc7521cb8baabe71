"""Prompts that the caller has written: messages of a chat, the last of which is the document."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import jinja2

from schemax.compiler import sandbox
from schemax.compiler.tokenizer import TextCodec
from schemax.errors import ModelError, TemplateError


@dataclass(frozen=True, slots=True)
class Conversation:
    """(role, content) of the messages before the document, in the place of a template.

    The document is the last message, of the user. Contents are data, as documents are: no text in
    them becomes a control token.
    """

    messages: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """Messages in a chat template: (markup, content) of all but the last, the markup around that.

    For a base model nothing.
    """

    turns: tuple[tuple[str, str], ...] = ()
    prefix: str = ""
    suffix: str = ""


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

    Turns thinking off where the template supports it. Raises ModelError for a chat template that
    fails on a single message or drops it, TemplateError for one that does so with several.
    """
    if codec.chat_template is None:
        return RenderedChat()
    marker = f"\ue000{uuid.uuid4().hex}"
    roles = [*(role for role, _ in messages), "user"]
    error_type = TemplateError if messages else ModelError
    remedy = (
        "send other roles, or fewer messages"
        if messages
        else "pass a tokenizer without chat_template to prompt it as a base model"
    )
    try:
        template = sandbox.from_text(codec.chat_template, jinja2.Undefined)
        with sandbox.deadline():
            text = template.render(
                messages=[
                    {"role": role, "content": f"{marker}-{n}\ue001"} for n, role in enumerate(roles)
                ],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                enable_thinking=False,
                **codec.special_tokens,
            )
    except Exception as error:  # any model's template: whatever it raises names the same remedy
        shown = " messages of " + ", ".join(roles) if messages else " a single user message"
        raise error_type(
            f"the tokenizer's chat template fails on{shown} ({error}); {remedy}"
        ) from error
    parts = re.split(re.escape(marker) + r"-(\d+)\ue001", text)
    if [int(n) for n in parts[1::2]] != list(range(len(roles))):
        what = "one of the messages" if messages else "the user's message"
        raise error_type(f"the tokenizer's chat template drops {what}; {remedy}")
    *markup, prefix, suffix = parts[0::2]
    if suffix.rstrip().endswith("<think>"):
        # Some templates force thinking; it is closed before it begins.
        suffix += "\n</think>\n\n"
    contents = (content for _, content in messages)
    return RenderedChat(tuple(zip(markup, contents, strict=True)), prefix, suffix)
