"""`schemax.json`: the settings that a model was trained with, and its defaults in use.

The file holds data and no code: a schema is the JSON Schema document of its class. The template
lies beside the file, as `prompt.jinja`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from schemax.base.resources import OURS, default_model, named_model, resource_dir
from schemax.config import LEFT_TO_MODELS, DecodingConfig, decoding_name, resolve_decoding
from schemax.errors import ModelError

FILE = "schemax.json"

SEEN = "seen.npz"
"""The file of the signatures of documents that a model has seen, beside its weights."""

EXAMPLES = "examples.jsonl"
"""The file of the examples that a model was trained behind, beside its weights."""


@dataclass(frozen=True, slots=True)
class TrainedWith:
    """The settings of a model's training.

    format, decoding, dtype: None if the model's folder does not name them.
    dtype: "bfloat16" for a model that is as good in it; a CPU that computes it fast then takes it.
    schemas: category -> JSON Schema document, as `AttrSchema.from_json_schema` reads them. Where
        categories had different formats or templates, their documents name them.
    seen: the path of signatures of the documents that the model was trained and calibrated on.
    """

    format: str | None = None
    decoding: DecodingConfig | None = None
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dtype: str | None = None
    seen: Path | None = field(default=None, compare=False)


def as_trained(config: DecodingConfig, trained: DecodingConfig | None) -> DecodingConfig:
    """The decoding of a call, completed by the settings of the model's training."""
    if trained is None or trained.constrain == "nothing":
        return config
    unsaid = [name for name in LEFT_TO_MODELS if getattr(config, name) is None]
    return replace(config, **{name: getattr(trained, name) for name in unsaid})


def read_trained(path: Path) -> TrainedWith:
    """Reads a file, ignoring unknown keys. Raises ModelError, naming it, for a broken file."""
    try:
        written = json.loads(path.read_text("utf-8"))
        if not isinstance(written, dict):
            raise ValueError("it is not a JSON object")
        format, decoding, dtype = (_text(written, key) for key in ("format", "decoding", "dtype"))
        if dtype not in (None, "bfloat16"):
            raise ValueError('dtype may be "bfloat16" only')
        config = None if decoding is None else resolve_decoding(decoding)
        schemas = written.get("schemas", {})
        if not isinstance(schemas, dict) or not all(isinstance(s, dict) for s in schemas.values()):
            raise ValueError("schemas must be JSON Schema documents by category")
        for document in schemas.values():
            # A template of one line could be taken for the name or path of a template.
            if (template := _text(document, "template")) is not None and "\n" not in template:
                document["template"] = f"{template}\n"
        return TrainedWith(format, config, schemas, dtype)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be used: {error}; delete it, and name format, decoding and schemas "
            "where the model is used"
        ) from error


def write_trained(trained: TrainedWith, folder: Path) -> None:
    """Writes the settings into the folder of a model or an adapter, which is loaded with them."""
    written = {
        "format": trained.format,
        "decoding": trained.decoding and decoding_name(trained.decoding),
        **({"dtype": trained.dtype} if trained.dtype else {}),
        "schemas": dict(trained.schemas),
    }
    text = json.dumps(written, indent=2, ensure_ascii=False) + "\n"
    (folder / FILE).write_text(text, "utf-8")


def _text(written: Mapping[str, Any], key: str) -> str | None:
    value = written.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} must be text")
    return value


def note_trained(
    name: str | None, extractor: Any, settings: Mapping[str, Any], examples: Any = None
) -> None:
    """Warns of settings that come from the model's training, and of examples that are missing.

    settings: format, template and decoding that the user named.
    examples: None for a run without examples, which a model trained behind examples lacks.
    """
    trained, place = extractor.trained, named_model(name) if name else default_model()
    if trained == TrainedWith() or place in [resource_dir(ours) for ours in OURS]:
        return  # their cards say so
    own = {
        "format": trained.format and f"the format {trained.format}",
        "decoding": trained.decoding and f"the decoding {decoding_name(trained.decoding)}",
        "template": extractor.defaults.template and "the template of its prompt.jinja",
    }
    if used := [text for key, text in own.items() if text and settings.get(key) is None]:
        warnings.warn(
            f"{place} is used as it was trained, where neither an option nor the schema says "
            f"otherwise: with {', '.join(used)}",
            stacklevel=2,
        )
    own_examples = Path(str(place)) / EXAMPLES
    if examples is None and own_examples.is_file():
        warnings.warn(
            f"{place} was trained behind examples, which --examples {own_examples} shows",
            stacklevel=2,
        )
