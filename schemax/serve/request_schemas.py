"""Turns clients' JSON Schema documents into declarations, within bounds."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from cachetools import LRUCache
from pydantic import BaseModel

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.extraction.declarations import load_schema
from schemax.extraction.schema import AttrSchema
from schemax.serve.answers import ApiError, at_fault
from schemax.serve.limits import ServerLimits

# The type of a schema in a request, object or name, and its text.
_Key: TypeAlias = tuple[type, str]

# Declarations between two runs of the garbage collector. Classes refer to themselves, so only the
# collector frees them.
_COLLECTION_INTERVAL = 16

# The memory of a declaration (classes, grammars, compiled prompts), estimated from the characters
# of its document and the choices of its fields.
_SCHEMA_BYTES, _CHARACTER_BYTES, _CHOICE_BYTES = 200_000, 500, 1_200


@dataclass(frozen=True, slots=True, eq=False)
class ClientSchema:
    """A declaration of a client.

    key: the document's. choices: the number of all fields' choices.
    """

    model: type[BaseModel]
    key: _Key
    choices: int = 0

    @property
    def bytes(self) -> int:
        return _SCHEMA_BYTES + _CHARACTER_BYTES * len(self.key[1]) + _CHOICE_BYTES * self.choices


class Schemas:
    """An LRU cache of declarations. It is used in the event loop's thread only."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        most = limits.cache_bytes
        # A declaration that is larger than the cache stays until the next declaration.
        self.kept = LRUCache[_Key, ClientSchema](most, lambda schema: min(most, schema.bytes))
        self._tasks: dict[_Key, asyncio.Task[ClientSchema]] = {}
        self._count = 0

    async def of(self, document: Mapping[str, Any] | str | None, param: str) -> ClientSchema:
        """The declaration of a JSON Schema document, or of a ready-made schema's name.

        A new schema is read in a thread. Raises ApiError (400, 422), with the reason, for a schema
        that cannot be declared.
        """
        if not isinstance(document, (str, Mapping)):
            raise ApiError(400, f"{param} must be a JSON Schema object", param=param)
        try:
            text = document if isinstance(document, str) else _json(document, param)
            key = type(document), text
            schema = self.kept.get(key)
            if schema is None:
                # Shielded: a client that leaves must not cancel the task of other clients.
                with at_fault(param):
                    schema = await asyncio.shield(self._tasks.get(key) or self._start(key))
        except ApiError as error:  # clients may share it, with parameters of other names
            raise ApiError(error.status, str(error), param=param) from error
        except RecursionError:
            raise ApiError(400, f"{param} is nested too deep", param=param) from None
        return schema

    def forget(self, schema: ClientSchema) -> None:
        """Drops a declaration that cannot be compiled."""
        self.kept.pop(schema.key, None)

    def _start(self, key: _Key) -> asyncio.Task[ClientSchema]:
        """Starts to read a declaration, for all clients that send it meanwhile."""
        kind, text = key
        read = self._named_schema if issubclass(kind, str) else self.read
        task = self._tasks[key] = asyncio.create_task(asyncio.to_thread(read, text))

        def keep(_: object) -> None:
            del self._tasks[key]
            # `exception` is read here, since the client that waits for it may have left.
            if task.cancelled() or task.exception() is not None:
                return
            self.kept[key] = task.result()
            self._count += 1
            if self._count % _COLLECTION_INTERVAL == 0:
                gc.collect()

        task.add_done_callback(keep)
        return task

    def _named_schema(self, name: str) -> ClientSchema:
        return ClientSchema(load_schema(name), (str, name))

    def read(self, text: str) -> ClientSchema:
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
        attributes = compile_attributes(model)
        count = sum(map(_fields, attributes))
        if count > self._limits.fields:
            raise ApiError(
                422, f"the schema has {count:,} fields; at most {self._limits.fields:,} are read"
            )
        return ClientSchema(model, (dict, text), sum(map(_choices, attributes)))


def _json(document: Mapping[str, Any], param: str) -> str:
    try:
        return json.dumps(document, allow_nan=False)
    except ValueError:
        raise ApiError(400, f"{param} has a number that is no JSON", param=param) from None


def _fields(attribute: Attribute) -> int:
    return 1 + sum(map(_fields, attribute.fields))


def _choices(attribute: Attribute) -> int:
    return len(attribute.choices) + sum(map(_choices, attribute.fields))
