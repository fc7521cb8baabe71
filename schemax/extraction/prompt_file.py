"""Prompt files: what `schemax fit` chose for a model and some categories, `prompt.json`.

A prompt file is data: its template is text, rendered in the sandbox, and its demonstrations are
annotated documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from schemax.attributes import settings_of
from schemax.base.calibration import Calibration
from schemax.compiler.few_shot import FewShotExample, FewShotExamples
from schemax.compiler.prompt import load_template
from schemax.config import DecodingConfig, decoding_name, resolve_decoding
from schemax.errors import InputError, TemplateError
from schemax.extraction.labels import labelled_instance
from schemax.extraction.stated import as_stated
from schemax.formats import get_format


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An annotated document in the prompt of its category.

    attributes: name, or title, -> JSON value; an attribute without a key is null.
    """

    category: str
    text: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The contents of a prompt file; None for a setting that was not chosen.

    template: its text. demonstrations: of all categories, in the order in which they are shown.
    source: the file's path, for messages.
    """

    template: str | None = None
    format: str | None = None
    decoding: DecodingConfig | None = None
    demonstrations: tuple[Demonstration, ...] = ()
    calibration: Calibration | None = None
    source: str = "the prompt file"

    def examples(self, schemas: type[Any] | Mapping[str, type[Any]]) -> FewShotExamples | None:
        """The demonstrations as examples of a schema, or of several by category; None without any.

        Categories are compared without regard to case; a single schema has the category that it
        declares. Raises InputError, naming the demonstration, for one that does not fit.
        """
        if not isinstance(schemas, Mapping):
            return self._of_category(settings_of(schemas).category, schemas) or None
        by_category = {name: self._of_category(name, schema) for name, schema in schemas.items()}
        return {name: examples for name, examples in by_category.items() if examples} or None

    def _of_category(self, category: str, schema: type[Any]) -> list[FewShotExample]:
        return [
            _example(f"demonstrations[{place}] of {self.source}", demonstration, schema)
            for place, demonstration in enumerate(self.demonstrations)
            if demonstration.category.casefold() == category.casefold()
        ]


def _example(name: str, demonstration: Demonstration, schema: type[Any]) -> FewShotExample:
    """name: the demonstration's, in messages."""
    try:
        stated = {key: as_stated(value) for key, value in demonstration.attributes.items()}
    except ValueError as error:
        raise InputError(f"document {name}: {error}") from error
    instance = labelled_instance(name, demonstration.category, stated, schema)
    return demonstration.text, instance


PromptLike = str | Path | PromptFile
"""A prompt file, or its path."""

_KEYS = ("template", "format", "decoding", "demonstrations", "calibration")


def read_prompt_file(prompt: PromptLike) -> PromptFile:
    """Reads a prompt file; returns a `PromptFile` unchanged.

    Raises InputError, naming the file and the key, for a file that cannot be read or used.
    """
    if isinstance(prompt, PromptFile):
        return prompt
    try:
        written = json.loads(Path(prompt).read_text("utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {prompt}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{prompt} is not a prompt file: it is not JSON ({error})") from error
    try:
        return _prompt_file(written, str(prompt))
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"{prompt} cannot be used: {error}; mend it, or write it again with `schemax fit`"
        ) from error


def write_prompt_file(prompt: PromptFile, path: Path) -> None:
    """Writes a file for `read_prompt_file`, in one step: a failure leaves the old file."""
    written = {
        "template": prompt.template,
        "format": prompt.format,
        "decoding": prompt.decoding and decoding_name(prompt.decoding),
        "calibration": prompt.calibration and asdict(prompt.calibration),
        "demonstrations": [asdict(item) for item in prompt.demonstrations],
    }
    scratch = path.with_name(f"_{path.name}.tmp")
    scratch.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8")
    scratch.replace(path)


def _prompt_file(written: Any, source: str) -> PromptFile:
    """Reads a prompt file. Raises ValueError and TypeError, which name the key."""
    if not isinstance(written, dict):
        raise ValueError(f"expected an object with {', '.join(_KEYS)}")
    _check_keys("", written, _KEYS)
    shown = written.get("demonstrations", [])
    if not isinstance(shown, list):
        raise ValueError("demonstrations: expected a list of annotated documents")
    template = _text("template", written.get("template"))
    if template is not None and "\n" not in template:
        template += "\n"  # one line could be the name or the path of a template
    if template is not None:
        try:
            load_template(template)
        except TemplateError as error:  # its message begins with "template"
            raise ValueError(str(error)) from error
    if (format := _text("format", written.get("format"))) is not None:
        try:
            get_format(format)
        except ValueError as error:
            raise ValueError(f"format: {error}") from error
    return PromptFile(
        template=template,
        format=format,
        decoding=_decoding(written.get("decoding")),
        demonstrations=tuple(_demonstration(*item) for item in enumerate(shown)),
        calibration=_calibration(written.get("calibration")),
        source=source,
    )


def _decoding(written: Any) -> DecodingConfig | None:
    if (name := _text("decoding", written)) is None:
        return None
    try:
        config = resolve_decoding(name)
    except (ValueError, TypeError) as error:
        raise ValueError(f"decoding: {error}") from error
    if not re.fullmatch(r"[\w-]*", config.template or ""):
        raise ValueError("decoding: it may name a ready-made template only")
    return config


def _calibration(written: Any) -> Calibration | None:
    if written is None:
        return None
    if not isinstance(written, dict):
        raise ValueError("calibration: expected an object")
    _check_keys("calibration: ", written, [item.name for item in fields(Calibration)])
    try:
        return Calibration(**written)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"calibration: {error}") from error


def _demonstration(place: int, written: Any) -> Demonstration:
    where = f"demonstrations[{place}]"
    names = [item.name for item in fields(Demonstration)]
    if not isinstance(written, dict):
        raise ValueError(f"{where}: expected an object with {', '.join(names)}")
    _check_keys(f"{where}: ", written, names)
    attributes = written.get("attributes")
    if not isinstance(attributes, dict):
        raise ValueError(f"{where}.attributes: expected an object")
    category, text = (_text(f"{where}.{key}", written.get(key)) for key in ("category", "text"))
    if category is None or text is None:
        raise ValueError(f"{where}.{'text' if category is not None else 'category'} is missing")
    return Demonstration(category, text, attributes)


def _check_keys(where: str, written: Mapping[str, Any], known: Sequence[str]) -> None:
    # A misspelt key would be ignored silently.
    if strange := [key for key in written if key not in known]:
        raise ValueError(f"{where}unknown key {strange[0]!r}; known are {', '.join(known)}")


def _text(key: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key}: expected text, not {value!r:.40}")
    return value
