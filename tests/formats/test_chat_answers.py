"""Answers of chats, with what models write around them."""

from __future__ import annotations

from typing import Any

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
    "nothing": '{"maker": "LG"}',
}


def test_answers_with_words_around_them(codec: Any) -> None:
    def chat(body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["messages"][0]["content"]
        answer = next(text for name, text in ANSWERS.items() if f"text of {name}" in prompt)
        return {"choices": [{"message": {"content": answer}}]}

    server = CompletionsServer(None, codec, "chat")
    server.chat = chat  # type: ignore[method-assign]
    server.start()
    try:
        extractor = Extractor.from_server(server.url, concurrency=1)
        found = extractor.stream([f"text of {name}" for name in ANSWERS], Television)
        items = dict(zip(ANSWERS, sorted(found, key=lambda item: item.index), strict=True))
    finally:
        server.stop()
    for name in ("thoughts", "prose"):
        assert items[name].value == Television(brand="LG", size=55)
    assert items["wrapper"].value == Television(brand="LG", size=55, ports=["HDMI", "USB"])
    assert items["commas"].value == Television(brand="LG", size=55.5, ports=["HDMI"])
    assert items["quotes"].value == Television()
    assert [error.field for error in items["quotes"].errors] == ["brand", "size"]
    assert all("behind the string" in error.message for error in items["quotes"].errors)
    (error,) = items["nothing"].errors
    assert (error.field, error.message) == (None, "the output holds none of the keys")
    assert not any(item.errors for name, item in items.items() if name not in ("quotes", "nothing"))
