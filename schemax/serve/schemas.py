"""JSON Schema documents of strangers become declarations, within bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import BaseModel

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.catalog import load_schema
from schemax.compiler import CompiledSchema
from schemax.schema import AttrSchema
from schemax.serve.errors import ApiError
from schemax.serve.limits import Limits

_Key: TypeAlias = tuple[type, str]


@dataclass(frozen=True, slots=True, eq=False)
class ClientSchema:
    """A declaration, and the document that it was made of.

    compiled: by template and decoding, as far as these are named.
    """

    model: type[BaseModel]
    document: Mapping[str, Any]
    compiled: dict[Any, CompiledSchema] = field(default_factory=dict)

    def node_of(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a node of the document refers to, null apart."""
        for _ in range(32):
            if "$ref" in node:
                found: Any = self.document
                for step in str(node["$ref"]).split("/")[1:]:
                    found = found[step.replace("~1", "/").replace("~0", "~")]
                node = found
                continue
            some = next((node[word] for word in ("allOf", "anyOf", "oneOf") if word in node), None)
            if some is None:
                break
            node = next((part for part in some if part.get("type") != "null"), {})
        return node


class Schemas:
    """Declarations of documents, those used last kept, so that each is read and compiled once."""

    def __init__(self, limits: Limits, size: int = 128) -> None:
        self._limits, self._size = limits, size
        self._kept: dict[_Key, ClientSchema] = {}
        self._coming: dict[_Key, asyncio.Task[ClientSchema]] = {}

    async def of(self, document: Mapping[str, Any] | str | None, param: str) -> ClientSchema:
        """Of a JSON Schema document, or of the name of a ready-made one.

        A new one is read in a thread, since that takes its time. Raises ApiError (400, 422) for
        what is no declaration, and says why; InputError for an unknown name.
        """
        if not isinstance(document, (str, Mapping)):
            raise ApiError(400, f"{param} must be a JSON Schema object", param=param)
        try:
            text = document if isinstance(document, str) else json.dumps(document)
            key = type(document), text
            found = self._kept.pop(key, None)
            if found is None:
                # One client that leaves takes the declaration from no other.
                found = await asyncio.shield(self._coming.get(key) or self._start(key))
        except ApiError as error:
            error.param = param
            raise
        except RecursionError:
            raise ApiError(400, f"{param} is nested too deep", param=param) from None
        self._kept[key] = found
        if len(self._kept) > self._size:
            del self._kept[next(iter(self._kept))]
        return found

    def _start(self, key: _Key) -> asyncio.Task[ClientSchema]:
        """Has a declaration read, for all who ask for it meanwhile."""
        kind, text = key
        read = self._named if issubclass(kind, str) else self._read
        task = self._coming[key] = asyncio.create_task(asyncio.to_thread(read, text))

        def done(_: object) -> None:
            del self._coming[key]
            if not task.cancelled():
                task.exception()  # which nobody may be left to look at

        task.add_done_callback(done)
        return task

    def _named(self, name: str) -> ClientSchema:
        return ClientSchema(load_schema(name), {})

    def _read(self, text: str) -> ClientSchema:
        if len(text) > self._limits.schema_characters:
            raise ApiError(
                422,
                f"the schema has {len(text):,} characters; at most "
                f"{self._limits.schema_characters:,} are read",
            )
        document = json.loads(text)
        model = AttrSchema.from_json_schema(document)
        settings = settings_of(model)
        if settings.template or settings.format:  # a template may be a path
            raise ApiError(400, "'template' and 'format' are for the server to choose; remove them")
        count = sum(map(_fields, compile_attributes(model)))
        if count > self._limits.fields:
            raise ApiError(
                422, f"the schema has {count:,} fields; at most {self._limits.fields:,} are read"
            )
        return ClientSchema(model, document)


def _fields(attribute: Attribute) -> int:
    return 1 + sum(map(_fields, attribute.fields))
