"""Messages of OpenAI's chats, and the prompt that they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel

from schemax.compiler.conversation import Conversation
from schemax.serve.errors import ApiError

_ROLES = {"developer": "system", "tool": "user", "function": "user"}


class Part(BaseModel):
    """A part of a message's content."""

    type: str
    text: str | None = None


class Message(BaseModel):
    """A message; of a call of a tool, what it was called with is its content."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    tool_calls: list[dict[str, Any]] | None = None

    def text(self, place: int) -> str:
        """Raises ApiError (400) for what is no text."""
        if isinstance(self.content, str):
            return self.content
        if self.content is None:
            calls = [call.get("function") for call in self.tool_calls or ()]
            return "\n".join(str(c.get("arguments", "")) for c in calls if isinstance(c, dict))
        for part in self.content:
            if part.text is None:
                raise ApiError(
                    400,
                    f"messages[{place}] has a part of type {part.type!r}; only text is read",
                    param=f"messages[{place}].content",
                )
        return "\n".join(part.text or "" for part in self.content)


def as_prompt(messages: Sequence[Message]) -> tuple[Conversation, str]:
    """The messages before the last one, and the last one's text, which is the document.

    Raises ApiError (400) where the last one is not the user's, or is empty.
    """
    said = [(_ROLES.get(m.role, m.role), m.text(place)) for place, m in enumerate(messages)]
    if not said or said[-1][0] != "user" or not said[-1][1].strip():
        raise ApiError(
            400, "the last message must be the user's, with the text to read", param="messages"
        )
    return Conversation(tuple(said[:-1])), said[-1][1]
