"""Answers of chats, with what models write around them."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest
from completions_server import CompletionsServer

from schemax import AttrSchema, Extractor, attr


class Television(AttrSchema):
    brand: str | None = None
    size: float | None = attr(default=None, unit="inch")
    ports: list[str] | None = None


ANSWERS = {
    "thoughts": '<think>\nSize {55}, or {"size": 50}?\n</think>\n\n{"brand": "LG", "size": 55}',
    "prose": 'Here is it:\n```json\n{"brand": "LG", "size": 55}\n```\nShall I {go} on?',
    "wrapper": '{"product": {"brand": "LG", "size": 55, "ports": ["HDMI", "USB"]}}',
    "commas": '{"brand": "LG", "size": 55,5, "ports": ["HDMI"]}',
    "quotes": '{"brand": "LG 55" TV", "size": "55"", "ports": null}',
    "unopened": 'Or {"brand": "TCL"}?\n</think>\n\n{"brand": "LG", "size": 55}',
    "twice": '{"brand": "LG", "size": 55}\nThat is: {"brand": "LG", "size": 55}',
    "drafts": '{"brand": "LG", "size": 50}\nNo, wait:\n{"brand": "LG", "size": 55}',
    "fences": '```json\n{"size": 50}\n```\nOr rather:\n```json\n{"size": 55}\n```',
    "nothing": '{"maker": "LG"}',
}


def read(codec: Any, choices: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The rows by name, where a chat answers the text of a name with its choice."""

    def chat(body: dict[str, Any]) -> dict[str, Any]:
        (message,) = body["messages"]
        choice = next(c for name, c in choices.items() if f"text of {name}" in message["content"])
        return {"choices": [choice]}

    server = CompletionsServer(None, codec, "chat")
    server.chat = chat  # type: ignore[method-assign]
    server.start()
    try:
        extractor = Extractor.from_server(server.url, concurrency=1)
        rows = extractor.stream([f"text of {name}" for name in choices], Television)
        return dict(zip(choices, sorted(rows, key=lambda row: row.index), strict=True))
    finally:
        server.stop()


def test_answers_with_words_around_them(codec: Any) -> None:
    choices = {name: {"message": {"content": text}} for name, text in ANSWERS.items()}
    items = read(codec, choices)
    for name in ("thoughts", "prose", "unopened", "twice"):
        assert items[name].value == Television(brand="LG", size=55)
    assert items["wrapper"].value == Television(brand="LG", size=55, ports=["HDMI", "USB"])
    assert items["commas"].value == Television(brand="LG", size=55.5, ports=["HDMI"])
    assert items["quotes"].value == Television()
    assert [error.field for error in items["quotes"].errors] == ["brand", "size"]
    assert all("behind the string" in error.message for error in items["quotes"].errors)
    refused = ("nothing", "drafts", "fences")
    for name in refused:
        (error,) = items[name].errors
        assert error.message == "the output holds none of the keys, or several answers"
    whole = [item for name, item in items.items() if name not in ("quotes", *refused)]
    assert not any(item.errors for item in whole)


def test_thoughts_are_no_answer(codec: Any) -> None:
    draft = '{"brand": "LG", "size": 55}'
    choices: dict[str, dict[str, Any]] = {
        "thoughts alone": {"message": {"content": None, "reasoning_content": draft}},
        "open thoughts": {"message": {"content": f"<think>Is it {draft}"}},
        "cut off": {"message": {"content": f"Is it {draft}"}, "finish_reason": "length"},
        "whole": {"message": {"content": draft}, "finish_reason": "length"},
    }
    rows = read(codec, choices)
    assert rows.pop("whole").value == Television(brand="LG", size=55)
    assert "tokens ran out" in rows["cut off"].errors[0].message
    for row in rows.values():
        assert row.value is None
        assert "the model gave no answer" in row.errors[0].message


def test_confidence_is_of_the_answer_and_of_probabilities(codec: Any) -> None:
    def told(thought: bool, brand: float) -> dict[str, Any]:
        texts = ["<think>", '{"brand": "LG"}', "</think>", '{"brand": ', '"LG"', "}"]
        logprobs = [-3.0, -3.0, -3.0, -3.0, brand, -3.0]
        if not thought:
            texts, logprobs = texts[3:], logprobs[3:]
        content = [
            {"token": text, "logprob": logprob}
            for text, logprob in zip(texts, logprobs, strict=True)
        ]
        return {"message": {"content": "".join(texts)}, "logprobs": {"content": content}}

    choices = {
        "impossible": told(False, 1.0),
        "thought": told(True, -0.5),
        "sure": told(False, 1e-6),
    }
    rows = read(codec, choices)
    assert {row.value.brand for row in rows.values()} == {"LG"}
    confidences = {name: row.fields["brand"].confidence for name, row in rows.items()}
    assert confidences["impossible"] is None
    assert confidences["sure"] == 1.0
    assert confidences["thought"] == pytest.approx(exp(-0.5))
