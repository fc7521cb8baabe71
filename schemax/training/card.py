"""The card of a training run beside its weights: data, settings and outcome."""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from schemax.attributes import Attribute, compile_attributes
from schemax.base.trained import FILE, TrainedWith
from schemax.compiler import CompiledSchema
from schemax.compiler.prompt import template_source, usual_template
from schemax.errors import InputError, SchemaError
from schemax.extraction.schema import AttrSchema

CARD = "training.json"
_RUN = "run.json"

# Settings that may change when a run is resumed.
_MAY_CHANGE = {"epochs", "steps", "keep_adapter"}


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_unseen(folder: Path, file: Path) -> None:
    """Raises InputError if a model was trained on a file: its confidences are too high there."""
    try:
        card = json.loads((folder / CARD).read_text("utf-8"))
        trained_on = card["settings"]["data"]["train"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if file.is_file() and trained_on == digest(file):
        raise InputError(
            f"{folder} was trained on {file}, where its confidences are too high; calibrate it on "
            "other documents"
        )


def versions() -> dict[str, str]:
    """Returns the versions of the software that results depend on."""
    found = {"python": platform.python_version()}
    for name in ("schemax-hpd", "torch", "transformers", "accelerate", "peft"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def trained_with(
    compiled: Mapping[str, CompiledSchema], templates: Mapping[str, Any]
) -> tuple[TrainedWith, str | None]:
    """Returns the settings of a training, and the text of the template that all categories share;
    None if templates differ.

    compiled, templates: by category; None is the default template, whose text may change with the
    version of schemax. Schemas and templates that are code cannot be written: they are left out,
    with a warning.
    """
    decoding = next(iter(compiled.values())).decoding
    sources: dict[str, str | None] = {}
    for category, template in templates.items():
        used = template or usual_template(decoding)
        sources[category] = template_source(used) if isinstance(used, (str, Path)) else None
        if sources[category] is None:
            _warn_unwritten("the template", category)
    formats = {item.format.name for item in compiled.values()}
    shared = len(set(sources.values())) == 1
    schemas: dict[str, Mapping[str, Any]] = {}
    for category, item in compiled.items():
        own = {
            "category": item.category,
            "format": item.format.name if len(formats) > 1 else None,
            "template": None if shared else sources[category],
        }
        document = _document_of(item.schema)
        if document is None:
            _warn_unwritten("the schema", category)
        else:
            kept = {key: value for key, value in document.items() if key not in own}
            schemas[category] = kept | {key: value for key, value in own.items() if value}
    format = formats.pop() if len(formats) == 1 else None
    return TrainedWith(format, decoding, schemas), next(iter(sources.values())) if shared else None


def _warn_unwritten(what: str, category: str) -> None:
    warnings.warn(
        f"{what} of {category!r} is code, which {FILE} does not hold: name it where the model is "
        "used",
        stacklevel=3,
    )


def _document_of(schema: type[BaseModel]) -> dict[str, Any] | None:
    """Returns the schema as JSON; None if the JSON would ask for anything else."""
    try:
        document = schema.model_json_schema()
        for chosen in (False, True):
            if chosen:
                # A title equal to the class's name suggests that Pydantic made all titles below.
                for part in (document, *document.get("$defs", {}).values()):
                    part["title"] = f"{part.get('title', '')} "
            again = AttrSchema.from_json_schema(document)
            if _asked(compile_attributes(again)) == _asked(compile_attributes(schema)):
                return document
    except (SchemaError, ValueError, PydanticUserError):
        pass
    return None


def _asked(attributes: Sequence[Attribute]) -> list[Attribute]:
    """Returns attributes without the members of Enums, which JSON gives by their values."""
    return [replace(a, choice_values=(), fields=tuple(_asked(a.fields))) for a in attributes]


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", "utf-8")


def begin_run(folder: Path, described: Mapping[str, Any], *, resume: bool) -> None:
    """Writes a run's settings into its folder of checkpoints, or compares them if it is resumed.

    Raises InputError, naming them, for changed settings that would give a resumed run other batches
    or other weights.
    """
    path = folder / _RUN
    plain = json.loads(json.dumps(described))
    if not resume:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(plain, indent=2) + "\n", "utf-8")
        return
    if not path.is_file():
        done = (folder.parent / CARD).is_file()
        why = "it is finished, and its checkpoints are gone" if done else "none was begun there"
        raise InputError(f"there is no run in {folder.parent} to resume: {why}")
    before = json.loads(path.read_text("utf-8"))
    changed = [key for key in {**before, **plain} if before.get(key) != plain.get(key)]
    if odd := [key for key in changed if key not in _MAY_CHANGE]:
        raise InputError(
            f"the run in {folder.parent} had different settings ({', '.join(sorted(odd))}); "
            "resume it with the same settings, or train into another folder"
        )
