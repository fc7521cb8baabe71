"""Declarations of strangers: read once, whoever asks for them meanwhile."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("fastapi")

from schemax.serve.errors import ApiError
from schemax.serve.limits import Limits
from schemax.serve.schemas import Schemas

DOCUMENT = {
    "type": "object",
    "properties": {"brand": {"type": "string"}},
    "required": ["brand"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("document", [DOCUMENT, "shoes"])
def test_clients_that_ask_at_once_share_a_declaration(document: object) -> None:
    async def ask() -> None:
        schemas = Schemas(Limits())
        asked = [asyncio.create_task(schemas.of(document, "schema")) for _ in range(8)]
        await asyncio.sleep(0)
        asked[0].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert len({id(one) for one in found[1:]}) == 1
        assert await schemas.of(document, "schema") is found[1]

    asyncio.run(ask())


def test_clients_that_ask_at_once_share_a_refusal() -> None:
    async def ask() -> None:
        schemas = Schemas(Limits(schema_characters=10))
        asked = [schemas.of(DOCUMENT, f"schema {number}") for number in range(4)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(one, ApiError) and one.status == 422 for one in found)
        assert [getattr(one, "param", None) for one in found] == [f"schema {n}" for n in range(4)]

    asyncio.run(ask())


def test_a_declaration_is_kept_for_a_client_that_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Schemas.read
    texts: list[str] = []
    monkeypatch.setattr(Schemas, "read", lambda *given: texts.append(given[1]) or read(*given))

    async def ask() -> None:
        schemas = Schemas(Limits())
        leaving = asyncio.create_task(schemas.of(DOCUMENT, "schema"))
        await asyncio.sleep(0)
        leaving.cancel()
        while not schemas.kept:
            await asyncio.sleep(0.01)
        await schemas.of(DOCUMENT, "schema")

    asyncio.run(asyncio.wait_for(ask(), 60))
    assert len(texts) == 1
