"""Output formats, which write values into an output and read them back.

Built in are `json`, `yaml` and `xml`; `register_format` adds others: any object with the members
of `OutputFormat`.
"""

from __future__ import annotations

from schemax.formats.base import (
    NEWLINE,
    BaseFormat,
    DocumentKey,
    Form,
    OutputFormat,
    Path,
    Scalar,
    Spelling,
    StopAt,
    StopRule,
    Value,
    Writable,
    stop_at,
)
from schemax.formats.json_format import JsonFormat
from schemax.formats.xml_format import XmlFormat
from schemax.formats.yaml_format import YamlFormat

__all__ = [
    "NEWLINE",
    "BaseFormat",
    "DocumentKey",
    "Form",
    "JsonFormat",
    "OutputFormat",
    "Path",
    "Scalar",
    "Spelling",
    "StopAt",
    "StopRule",
    "Value",
    "Writable",
    "XmlFormat",
    "YamlFormat",
    "format_names",
    "get_format",
    "register_format",
    "stop_at",
]

_FORMATS: dict[str, OutputFormat] = {
    "json": JsonFormat(),
    "yaml": YamlFormat(),
    "xml": XmlFormat(),
}
_MEMBERS = (
    *("name", "delimiter", "stop", "end", "opening", "key"),
    *("closing", "escape", "unescape", "parse", "check"),
)


def _checked(format: object) -> OutputFormat:
    if isinstance(format, OutputFormat):
        return format
    missing = [member for member in _MEMBERS if not hasattr(format, member)]
    raise TypeError(f"{format!r} is not an OutputFormat: it lacks {', '.join(missing)}")


def register_format(name: str, format: OutputFormat, *, replace: bool = False) -> None:
    """Registers a format under a name, which then serves wherever a format is named."""
    if not name:
        raise ValueError("a format requires a name")
    if _FORMATS.get(name, format) is not format and not replace:
        raise ValueError(f"format {name!r} is already registered; pass replace=True to replace it")
    _FORMATS[name] = _checked(format)


def get_format(format: str | OutputFormat) -> OutputFormat:
    """The format with a name; returns a format itself unchanged."""
    if not isinstance(format, str):
        return _checked(format)
    try:
        return _FORMATS[format]
    except KeyError:
        known = ", ".join(format_names())
        raise ValueError(f"unknown format {format!r}; known are {known}") from None


def format_names() -> tuple[str, ...]:
    """The names of all registered formats."""
    return tuple(_FORMATS)
