"""JSON Schema documents of strangers become declarations, within bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.catalog import load_schema
from schemax.schema import AttrSchema
from schemax.serve.errors import ApiError
from schemax.serve.limits import Limits


@dataclass(frozen=True, slots=True, eq=False)
class ClientSchema:
    """A declaration, and the document that it was made of."""

    model: type[BaseModel]
    document: Mapping[str, Any]

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


@lru_cache(maxsize=256)
def named_schema(name: str) -> ClientSchema:
    """A ready-made category. Raises InputError for an unknown name."""
    return ClientSchema(load_schema(name), {})


class Schemas:
    """Declarations of documents, kept so that each is compiled once."""

    def __init__(self, limits: Limits, size: int = 128) -> None:
        self._limits = limits
        self._of_text = lru_cache(maxsize=size)(self._read)

    def of(self, document: Mapping[str, Any] | str | None, param: str) -> ClientSchema:
        """Raises ApiError (400) for a document that is no declaration, and says why."""
        if isinstance(document, str):
            return named_schema(document)
        if not isinstance(document, Mapping):
            raise ApiError(400, f"{param} must be a JSON Schema object", param=param)
        text = json.dumps(document)
        if len(text) > self._limits.schema_characters:
            raise ApiError(
                422,
                f"{param} has {len(text):,} characters; at most "
                f"{self._limits.schema_characters:,} are read",
                param=param,
            )
        try:
            return self._of_text(text)
        except ApiError as error:
            error.param = param
            raise
        except RecursionError:
            raise ApiError(400, f"{param} is nested too deep", param=param) from None

    def _read(self, text: str) -> ClientSchema:
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
