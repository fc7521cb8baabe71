"""Prompt files: what `schemax fit` chose for a model and some categories, `prompt.json`.

A prompt file is data: its template is text, rendered in the sandbox, and its demonstrations are
annotated documents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from schemax.attributes import settings_of
from schemax.attributes.examples import FewShotExample, FewShotExamples
from schemax.base.calibration import Calibration
from schemax.base.messages import misfit_of
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

    template: its text.
    demonstrations: of all categories, in the order in which they are shown.
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


def _template(text: str) -> str:
    """A template's text; a single line could be the name or the path of a template."""
    text = text if "\n" in text else f"{text}\n"
    load_template(text)
    return text


def _format(name: str) -> str:
    get_format(name)
    return name


class _Written(TypedDict, total=False):
    """The contents of a file, with its keys and their types."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    template: Annotated[str, AfterValidator(_template)] | None
    format: Annotated[str, AfterValidator(_format)] | None
    decoding: Annotated[str, AfterValidator(resolve_decoding)] | None
    demonstrations: tuple[Demonstration, ...]
    calibration: Calibration | None


_WRITTEN = TypeAdapter(_Written)


def read_prompt_file(prompt: PromptLike) -> PromptFile:
    """Reads a prompt file; returns a `PromptFile` unchanged.

    Raises InputError, naming the file and the key, for a file that cannot be read or used.
    """
    if isinstance(prompt, PromptFile):
        return prompt
    try:
        text = Path(prompt).read_text("utf-8-sig")
        written: Any = _WRITTEN.validate_json(text)
    except OSError as error:
        raise InputError(f"cannot read {prompt}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{prompt} is not a prompt file: it is not UTF-8 text") from error
    except (ValidationError, TemplateError) as error:
        reason = misfit_of(error) if isinstance(error, ValidationError) else str(error)
        reason = reason.replace("Value error, ", "")
        raise InputError(
            f"{prompt} cannot be used: {reason}; mend it, or write it again with `schemax fit`"
        ) from error
    return PromptFile(**written, source=str(prompt))


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
