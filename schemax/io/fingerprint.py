"""Fingerprints of the settings and inputs that a run's rows depend on."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, fields
from hashlib import blake2b, file_digest
from os import SEEK_END
from pathlib import Path
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from schemax.attributes import asked_fields, compile_attributes
from schemax.attributes.annotations import annotation_of, field_type_of
from schemax.attributes.classes import reader_of
from schemax.attributes.examples import FewShotExamples
from schemax.base.calibration import FILE as CALIBRATION
from schemax.base.calibration import Calibration
from schemax.base.trained import FILE as TRAINED
from schemax.compiler import as_codec
from schemax.compiler.prompt import TemplateLike, template_source
from schemax.config import DecodingConfig
from schemax.extraction.extractor import Extractor
from schemax.extraction.prompt_file import PromptFile
from schemax.formats import OutputFormat
from schemax.io.columns import Schemas, named_schemas
from schemax.io.lake import Snapshot, is_snapshot
from schemax.io.storage import reading_whole
from schemax.servers.remote import RemoteModel

# Weights, configurations, tokenizers, templates; not cards and logs.
_MODEL_FILES = (".gguf", ".json", ".jinja", ".model", ".safetensors", ".tiktoken", ".txt")

_EDGE = 1 << 20  # bytes of a file's beginning and end that stand for its contents

_OUTLINE = "outline"
_MOST_TOLD = 5

_DIGESTS = ("schema ", "template ", "examples ", "prompt ", "model ")


def of_files(files: tuple[str, ...]) -> dict[str, Any]:
    """Size and digest of the edges of every file; rows are compared one by one when they are read.

    The time of the last change does not count, since copies do not keep it.
    """
    return {f"input {name}": _of_file(name) for name in files}


def _of_file(name: str) -> dict[str, Any]:
    if is_snapshot(name):
        return {"table": Snapshot(name).id}
    with reading_whole(name) as handle:
        size = handle.seek(0, SEEK_END)
        handle.seek(0)
        edges = blake2b(handle.read(_EDGE), digest_size=8)
        if size > _EDGE:
            handle.seek(max(_EDGE, size - _EDGE))
            edges.update(handle.read())
    return {"bytes": size, "digest": edges.hexdigest()}


def of_schemas(schemas: Schemas) -> dict[str, Any]:
    """Digests of schemas: of their fields, of the treatment of values, and of their code.

    Each has an outline, from which `differences` names the changes.
    """
    named = named_schemas(schemas)
    digests = {schema: _of_schema(schema) for schema in set(named.values())}
    settings: dict[str, Any] = {}
    for name, schema in named.items():
        settings[f"schema {name}".strip()] = digests[schema]
        settings[f"{_OUTLINE} {name}".strip()] = _outline(schema)
    return settings


def _outline(schema: type[Any]) -> dict[str, dict[str, str]]:
    """The declaration of every field, as texts."""
    return {
        attribute.name: {
            part.name: _plain(getattr(attribute, part.name))
            for part in fields(attribute)
            if part.compare and part.name not in ("path", "misfits")
        }
        for attribute in compile_attributes(schema)
    }


def _plain(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _of_schema(schema: type[Any]) -> str:
    texts = [repr(compile_attributes(schema))]
    modes: tuple[Literal["validation", "serialization"], ...] = ("validation", "serialization")
    texts += (
        json.dumps(reader_of(schema).json_schema(mode=mode), sort_keys=True, default=str)
        for mode in modes
    )
    for base in _classes(schema):
        if base.__module__.partition(".")[0] not in ("builtins", "pydantic", "schemax", "typing"):
            texts.append(_source(base))  # validators are code
    # Objects without a text of their own show their address, which differs between processes.
    return digest(re.sub(r" at 0x[0-9a-f]+", "", "\n".join(texts)))


def _classes(schema: type[Any]) -> Iterator[type]:
    """Yields a class, its bases, and the classes and bases of nested models."""
    seen, waiting = [], [schema]
    while waiting:
        model = waiting.pop()
        seen.append(model)
        yield from model.__mro__
        for field in asked_fields(model).values():
            inner = field_type_of(annotation_of(field)).models
            waiting += (nested for nested in inner if nested not in seen)


def _source(item: type) -> str:
    try:
        return inspect.getsource(item)
    except (OSError, TypeError):
        return item.__qualname__


def of_settings(config: DecodingConfig, calibration: Calibration) -> dict[str, Any]:
    settings = {f"decoding {key}": value for key, value in asdict(config).items()}
    # Rows do not depend on batch_size, and a run that ran out of memory must resume with less.
    del settings["decoding batch_size"]
    decisive = ("temperature", "bias", "min_probability")  # the others only warn
    settings |= {f"calibration {key}": getattr(calibration, key) for key in decisive}
    return settings | {"calibration promise": calibration.promise and asdict(calibration.promise)}


def of_prompt(format: str | OutputFormat, template: TemplateLike) -> tuple[str, str]:
    """The name of a format, and a digest of a template."""
    name = format if isinstance(format, str) else type(format).__qualname__
    source = template_source(template) if isinstance(template, (str, Path)) else repr(template)
    return name, digest(source)


def of_examples(examples: FewShotExamples | None) -> str | None:
    """A digest of the examples in prompts, whatever their source."""
    if examples is None:
        return None
    return digest(json.dumps(to_jsonable_python(examples, fallback=str), sort_keys=True))


def of_prompt_file(prompt: PromptFile) -> str:
    """A digest of a prompt file's demonstrations; its other settings are known by themselves."""
    return digest(repr([asdict(demonstration) for demonstration in prompt.demonstrations]))


def of_model(name: str | Path, loaded: Any) -> str:
    """The commit of a model of the Hub, else a digest of its folder's files.

    An adapter includes its base model. The calibration is left out, since it is compared by itself.
    loaded: the model of transformers, whose configuration has the commit.
    """
    folder = Path(name)
    if folder.is_file():  # a GGUF file: only the files beside it that are read with it
        beside = [folder.parent / file for file in ("prompt.jinja", TRAINED)]
        files = [folder, *filter(Path.is_file, beside)]
        return digest("\n".join(map(_digest_of_file, files)))
    if not folder.is_dir():
        return f"{name}@{getattr(loaded.config, '_commit_hash', None)}"
    files = sorted(
        file
        for file in folder.iterdir()
        if file.suffix in _MODEL_FILES and file.name != CALIBRATION
    )
    with ThreadPoolExecutor() as pool:  # digests let other threads run
        digests = list(pool.map(_digest_of_file, files))
    adapter = folder / "adapter_config.json"
    if adapter.is_file():
        base = json.loads(adapter.read_text("utf-8")).get("base_model_name_or_path")
        digests.append(of_model(str(base), loaded))
    return digest("\n".join(digests))


def of_weights(model: Any, tokenizer: Any, eos_ids: Sequence[int]) -> str:
    """A digest of a model in memory and its tokenizer, whatever they were loaded from.

    Parameters whose bytes cannot be read (some quantized ones) count by name, type and shape.
    """
    import torch

    texts = [str(model.config), as_codec(tokenizer).to_str(), repr(tuple(eos_ids))]
    for name, tensor in model.state_dict().items():
        texts.append(f"{name} {tensor.dtype} {tuple(tensor.shape)}")
        with suppress(RuntimeError, NotImplementedError):
            values = tensor.detach().contiguous().flatten().view(torch.uint8).cpu().numpy()
            texts.append(blake2b(values, digest_size=16).hexdigest())
    return digest("\n".join(texts))


def of_loaded(extractor: Extractor) -> dict[str, Any]:
    """Digest and dtype of a loaded model; of a server, what it reports."""
    model = extractor.model
    if isinstance(model, RemoteModel):
        return model.fingerprint()
    weights = of_weights(model.model, extractor.tokenizer, extractor.eos_ids)
    return {"weights": weights, "dtype": str(model.dtype).removeprefix("torch.")}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The changes that keep an unfinished run from being resumed, a phrase for each."""
    changes = []
    for key, value in now.items():
        if key.partition(" ")[0] == _OUTLINE:
            continue
        if key not in before:
            changes.append(f"{key} is new")
        elif before[key] != (value := json.loads(json.dumps(value))):
            plain = not isinstance(value, dict) and not (key + " ").startswith(_DIGESTS)
            changed = f"{key} changed{_in_outline(key, before, now)}"
            changes.append(f"{key} was {before[key]!r}, is {value!r}" if plain else changed)
    inputs = [key for key in before if key.startswith("input ") and key not in now]
    if any(key.startswith("input ") for key in now):
        changes += (f"{key} is gone" for key in inputs)
    return changes


def _in_outline(key: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The changes of a schema: " (brand is new)"."""
    outline = key.replace("schema", _OUTLINE, 1)
    if not key.startswith("schema") or outline not in before or outline not in now:
        return ""
    old, new = before[outline], now[outline]
    changes = [f"{name} is gone" for name in old if name not in new]
    changes += [f"{name} is new" for name in new if name not in old]
    for name in new:
        for part, text in new[name].items() if name in old else ():
            if (before_text := old[name].get(part)) != text:
                changes.append(f"{part} of {name} was {before_text}, is {text}")
    if not changes:
        moved = list(old) != list(new)
        changes = ["the order of its fields" if moved else "its code, or what values must be like"]
    return f" ({', '.join(changes[:_MOST_TOLD])}{', ...' if len(changes) > _MOST_TOLD else ''})"


def digest(text: str) -> str:
    """A digest of a text in 32 digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _digest_of_file(path: Path) -> str:
    with open(path, "rb") as handle:
        hexdigest = file_digest(handle, lambda: blake2b(digest_size=16)).hexdigest()
    return f"{path.name} {hexdigest}"
