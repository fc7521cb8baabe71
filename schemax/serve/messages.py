"""Messages of OpenAI's chats, as a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel

from schemax.compiler.conversation import Conversation
from schemax.serve.errors import ApiError

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
_ROLES = {"developer": "system", "tool": "user", "function": "user"}


class Content(BaseModel):
    """A part of a message's content."""

    type: str
    text: str | None = None


class Message(BaseModel):
    """A message; the content of a tool call is its arguments."""

    role: Role
    content: str | list[Content] | None = None
    tool_calls: list[dict[str, Any]] | None = None

    def text(self, place: str) -> str:
        """The text of the message. place: the message's in its request.

        Raises ApiError (400) for content that is no text.
        """
        if isinstance(self.content, str):
            return self.content
        if self.content is None:
            calls = [call.get("function") for call in self.tool_calls or ()]
            return "\n".join(str(c.get("arguments", "")) for c in calls if isinstance(c, dict))
        for part in self.content:
            if part.text is None:
                raise ApiError(
                    400,
                    f"{place} has a part of type {part.type!r}; only text is read",
                    param=f"{place}.content",
                )
        return "\n".join(part.text or "" for part in self.content)


def as_prompt(messages: Sequence[Message], param: str) -> tuple[Conversation, str]:
    """The messages before the last one, and the text of the last one, which is the document.

    param: the key of the messages in the request.

    Raises ApiError (400) if the last message is not the user's, or is empty.
    """
    said = [
        (_ROLES.get(message.role, message.role), message.text(f"{param}[{place}]"))
        for place, message in enumerate(messages)
    ]
    if not said or said[-1][0] != "user" or not said[-1][1].strip():
        raise ApiError(
            400, f"{param} must end with a message of the user's, the text to read", param=param
        )
    return Conversation(tuple(said[:-1])), said[-1][1]
