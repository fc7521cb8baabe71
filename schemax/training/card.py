"""The card of a training run beside its weights: data, settings, outcome and curves."""

from __future__ import annotations

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
from schemax.errors import SchemaError
from schemax.evaluation.reliability import drawing
from schemax.extraction.schema import AttrSchema

CARD = "training.json"


def versions() -> dict[str, str]:
    """Returns the versions of the software that results depend on."""
    installed = {"python": platform.python_version()}
    for name in ("schemax-hpd", "torch", "transformers", "accelerate", "peft"):
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def trained_with(
    compiled: Mapping[str, CompiledSchema], templates: Mapping[str, Any]
) -> tuple[TrainedWith, str | None]:
    """Returns the settings of a training, and the text of the shared template.

    The text is None if categories have different templates.
    compiled, templates: by category; None is the default template, whose text may change with the
    version of schemax. Schemas and templates that are code are left out, with a warning.
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


def _warn_unwritten(part: str, category: str) -> None:
    warnings.warn(
        f"{part} of {category!r} is code, which {FILE} does not hold: name it when you use the "
        "model",
        stacklevel=3,
    )


def _document_of(schema: type[BaseModel]) -> dict[str, Any] | None:
    """Returns the schema as JSON; None if the JSON declares other attributes."""
    try:
        attributes = _without_members(compile_attributes(schema))
        document = schema.model_json_schema()
        for is_titled in (False, True):
            if is_titled:
                # If the title equals the class's name, Pydantic made it, and all titles within it.
                for part in (document, *document.get("$defs", {}).values()):
                    part["title"] = f"{part.get('title', '')} "
            again = AttrSchema.from_json_schema(document)
            if _without_members(compile_attributes(again)) == attributes:
                return document
    except (SchemaError, ValueError, PydanticUserError):
        pass
    return None


def _without_members(attributes: Sequence[Attribute]) -> list[Attribute]:
    """Returns attributes without the members of Enums: JSON holds their values alone."""
    return [
        replace(a, choice_values=(), fields=tuple(_without_members(a.fields))) for a in attributes
    ]


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", "utf-8")


# Names in the Trainer's log -> names in a card.
_NAMES = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "tokens_per_second": "tokens_per_second",
    "eval_loss": "held_out_loss",
    "eval_f1": "held_out_f1",
}
_PICTURES = {
    "loss": ("loss", "held_out_loss"),
    "F1": ("held_out_f1",),
    "learning rate": ("learning_rate",),
    "tokens per second": ("tokens_per_second",),
}

History = tuple[Mapping[str, float], ...]


def history_of(log: Sequence[Mapping[str, Any]]) -> History:
    """Returns a row, with its step, per entry of the Trainer's log that holds a loss."""
    rows = []
    for entry in log:
        known = {name: entry[key] for key, name in _NAMES.items() if key in entry}
        if "loss" in known or "held_out_loss" in known:
            rows.append({"step": entry["step"], **known})
    return tuple(rows)


def plot_training(history: History, path: Path) -> None:
    """Plots all curves over steps; the suffix of `path` gives the format."""
    shown = {
        title: names
        for title, names in _PICTURES.items()
        if any(name in row for row in history for name in names)
    }
    with drawing(path, (4.5 * len(shown), 3.5)) as figure:
        for axes, (title, names) in zip(
            figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
        ):
            for name in names:
                points = [(row["step"], row[name]) for row in history if name in row]
                dots = "o" if name.startswith("held_out") or len(points) == 1 else ""
                axes.plot(*zip(*points, strict=True), marker=dots, label=name.replace("_", " "))
            axes.set(title=title, xlabel="step")
            axes.set_ylim(bottom=0)
            axes.spines[["top", "right"]].set_visible(False)
            if len(names) > 1:
                axes.legend(frameon=False)
