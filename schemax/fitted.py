"""The demonstrations of a prompt file, as the examples that schemas take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemax.attributes import settings_of
from schemax.compiler.few_shot import FewShotExample, FewShotExamples
from schemax.errors import InputError
from schemax.labels import labelled_instance
from schemax.prompt_file import Demonstration, PromptFile
from schemax.stated import as_stated


def demonstrated(
    prompt: PromptFile, schemas: type[Any] | Mapping[str, type[Any]]
) -> FewShotExamples | None:
    """The examples of a schema, or of several by category; None where the file has none of them.

    Categories are compared without regard to case; a single schema has the one it declares.
    Raises InputError, naming the demonstration, for one that does not fit its schema.
    """
    if not prompt.demonstrations:
        return None
    if not isinstance(schemas, Mapping):
        return _of_category(prompt, settings_of(schemas).category, schemas) or None
    found = {name: _of_category(prompt, name, schema) for name, schema in schemas.items()}
    return {name: shown for name, shown in found.items() if shown} or None


def _of_category(prompt: PromptFile, category: str, schema: type[Any]) -> list[FewShotExample]:
    return [_example(called, one, schema) for called, one in prompt.of_category(category)]


def _example(called: str, shown: Demonstration, schema: type[Any]) -> FewShotExample:
    try:
        stated = {name: as_stated(value) for name, value in shown.attributes.items()}
    except ValueError as error:
        raise InputError(f"document {called}: {error}") from error
    return shown.text, labelled_instance(called, shown.category, stated, schema)
