"""Declarations of strangers: read once, whoever asks for them meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import tiny_model
from transformers import PreTrainedTokenizerFast

pytest.importorskip("fastapi")

from schemax import Extractor
from schemax.errors import TemplateError
from schemax.serve.answers import ApiError
from schemax.serve.limits import ServerLimits
from schemax.serve.request_schemas import Schemas
from schemax.serve.service import Service

DOCUMENT = {
    "type": "object",
    "properties": {"brand": {"type": "string"}},
    "required": ["brand"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("document", [DOCUMENT, "shoes"])
def test_clients_that_ask_at_once_share_a_declaration(document: object) -> None:
    async def ask() -> None:
        schemas = Schemas(ServerLimits())
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
        schemas = Schemas(ServerLimits(schema_characters=10))
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
        schemas = Schemas(ServerLimits())
        leaving = asyncio.create_task(schemas.of(DOCUMENT, "schema"))
        await asyncio.sleep(0)
        leaving.cancel()
        while not schemas.kept:
            await asyncio.sleep(0.01)
        await schemas.of(DOCUMENT, "schema")

    asyncio.run(asyncio.wait_for(ask(), 60))
    assert len(texts) == 1


def test_choices_count_in_what_is_kept() -> None:
    names = {"enum": [f"v{number}" for number in range(200)]}
    fields = {f"x{number}": {"$ref": "#/$defs/e"} for number in range(100)}

    async def ask() -> None:
        schemas = Schemas(ServerLimits(cache_bytes=30_000_000))
        for number in range(3):
            document = {"type": "object", "title": f"T{number}", "properties": fields}
            await schemas.of({**document, "$defs": {"e": names}}, "schema")
        assert len(schemas.kept) == 1
        assert 20_000_000 < schemas.kept.currsize < 30_000_000

    asyncio.run(ask())


def test_what_cannot_be_asked_for_is_not_kept(codec: Any, backend: Any) -> None:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    extractor = Extractor(tiny_model("qwen3", codec.vocab_size), fast)
    document = {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "x" * 2_000}},
    }

    async def ask() -> None:
        service = Service(extractor, "tiny", ServerLimits())
        found = await service.schemas.of(document, "schema")
        assert len(service.schemas.kept) == 1
        with pytest.raises(TemplateError):
            await service.compiled(found, {"template": "{{ 'x' * 2_000_000 }}"})
        assert (len(service.schemas.kept), service.schemas.kept.currsize) == (0, 0)

    asyncio.run(ask())
