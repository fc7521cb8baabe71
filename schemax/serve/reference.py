"""`GET /docs`: /openapi.json as a page that loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
code { font: 13px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
td { padding: 2px 12px 2px 0; vertical-align: top; }
"""


def reference_page(openapi: Mapping[str, Any]) -> str:
    """HTML of an OpenAPI document: every path with its description and the keys of its body."""
    sections = "".join(
        _section(f"{method.upper()} {path}", operation, openapi)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    )
    title = escape(openapi["info"]["title"])
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}: endpoints</title><style>{_STYLE}</style><h1>{title}</h1>"
        '<p>All of it for programs: <a href="/openapi.json">/openapi.json</a>. '
        f'To try it by hand: <a href="/">the playground</a>.</p>{sections}</html>'
    )


def _section(name: str, operation: Mapping[str, Any], openapi: Mapping[str, Any]) -> str:
    said = escape(operation.get("description", ""))
    body = operation.get("requestBody", {}).get("content", {})
    keys = "".join(_keys(body.get("application/json", {}).get("schema", {}), openapi))
    table = f"<table>{keys}</table>" if keys else ""
    return f"<h2><code>{escape(name)}</code></h2><p>{said}</p>{table}"


def _keys(schema: Mapping[str, Any], openapi: Mapping[str, Any]) -> Iterator[str]:
    """Yields a row for every key of an object."""
    if "$ref" in schema:
        schema = openapi["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    for name, value in schema.get("properties", {}).items():
        note = "required" if name in required else ""
        yield (
            f"<tr><td><code>{escape(name)}</code><td>{escape(_kind(value))}"
            f"<td>{note}<td>{escape(value.get('description', ''))}</tr>"
        )


def _kind(schema: Mapping[str, Any]) -> str:
    """A type in one line."""
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))
