"""The header of a GGUF file, checked before any other reader sees the file.

Other readers allocate memory by the counts and lengths that a file states; this one refuses numbers
that exceed the file.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from schemax.base.messages import counted, escape_controls
from schemax.errors import ModelError
from schemax.runtime.models.loading.refusals import brief

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
# Bounds far beyond any model's numbers.
_MOST_ENTRIES, _MOST_TENSORS, _MOST_ITEMS, _MOST_DIMENSIONS = 1 << 14, 1 << 18, 1 << 22, 4
_LONGEST_STRING = 1 << 24
_LARGEST_SIZE, _MOST_EXPERTS = 1 << 24, 1 << 12


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """The metadata and tensors of a GGUF file.

    values: metadata by key; for arrays, the number of items.
    shapes: shapes of tensors by name, the fastest dimension first.
    """

    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def architecture(self) -> str:
        return str(self.values["general.architecture"])

    @property
    def num_weights(self) -> int:
        return sum(map(prod, self.shapes.values()))


def read_header(path: Path) -> GGUFHeader:
    """Reads a header. Raises ModelError unless the file is complete, with model and tokenizer."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ModelError(
                    f"{path} is no GGUF file: it does not begin with {_MAGIC.decode()}"
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _parse(data)
    except ModelError:
        raise
    except struct.error as error:
        raise ModelError(f"{path} is cut short within its header; download it again") from error
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as GGUF: {escape_controls(brief(error))}"
        ) from error
    _check_model(path, header)
    return header


class _Cursor:
    """Reads a file from front to back.

    Raises struct.error at the end of the file, ValueError for impossible numbers.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = len(_MAGIC)

    def take(self, format: str) -> Any:
        (value,) = struct.unpack_from("<" + format, self._data, self.at)
        self.at += struct.calcsize("<" + format)
        return value

    def count(self, format: str, most: int, noun: str) -> int:
        number: int = self.take(format)
        if number > most:
            raise ValueError(f"it states {number:,} {noun}")
        return number

    def string(self) -> str:
        length = self.count("Q", _LONGEST_STRING, "bytes of one text")
        (raw,) = struct.unpack_from(f"{length}s", self._data, self.at)
        self.at += length
        return str(raw, "utf-8")

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise ValueError(f"it holds a value of the unknown type {kind}")
        return self._array()

    def _array(self) -> int:
        kind = self.take("I")
        length = self.count("Q", _MOST_ITEMS, "items of one array")
        if kind in _SCALARS:
            self.at += length * struct.calcsize("<" + _SCALARS[kind])
        elif kind == _STRING:
            for _ in range(length):
                self.string()
        else:
            raise ValueError(f"it holds an array of the type {kind}, which no reader knows")
        return length


def _parse(data: mmap.mmap) -> GGUFHeader:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    cursor = _Cursor(data)
    if (version := cursor.take("I")) not in _VERSIONS:
        raise ValueError(f"version {version} of the format is not among {_VERSIONS}")
    num_tensors = cursor.count("Q", _MOST_TENSORS, "tensors")
    values: dict[str, Any] = {}
    for _ in range(cursor.count("Q", _MOST_ENTRIES, "entries")):
        key = cursor.string()
        if key in values:
            raise ValueError(f"it states {key!r} twice")
        values[key] = cursor.value(cursor.take("I"))
    shapes: dict[str, tuple[int, ...]] = {}
    ends = [0]
    for _ in range(num_tensors):
        name = cursor.string()
        dimensions = cursor.count("I", _MOST_DIMENSIONS, "dimensions of one tensor")
        shape = tuple(cursor.take("Q") for _ in range(dimensions))
        kind = GGMLQuantizationType(cursor.take("I"))
        block, size = GGML_QUANT_SIZES[kind]
        if name in shapes or shape[:1] == () or shape[0] % block:
            raise ValueError(f"the tensor {name!r} is stated twice, or has an impossible shape")
        shapes[name] = shape
        ends.append(cursor.take("Q") + prod(shape) // block * size)
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"its alignment is {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    if start + max(ends) > len(data):
        missing = start + max(ends) - len(data)
        raise ValueError(
            f"{counted(missing, 'byte')} of its weights are missing; download it again"
        )
    return GGUFHeader(values, shapes)


def _check_model(path: Path, header: GGUFHeader) -> None:
    values = header.values
    if not isinstance(values.get("general.architecture"), str):
        raise ModelError(f"{path} does not say of which architecture its model is")
    if values.get("split.count", 1) != 1:
        raise ModelError(
            f"{path} is one of {values['split.count']} parts of a model; join them by llama.cpp's "
            "llama-gguf-split --merge, and name the result"
        )
    if not header.shapes:
        raise ModelError(f"{path} holds no weights")
    if not values.get("tokenizer.ggml.tokens") or "tokenizer.ggml.model" not in values:
        raise ModelError(f"{path} holds no tokenizer; convert the model again, with its tokenizer")
    for key, value in values.items():
        most = _LARGEST_SIZE
        if key.endswith("block_count"):
            most = len(header.shapes)
        elif "expert" in key:
            most = _MOST_EXPERTS
        elif not key.startswith(f"{header.architecture}.") or key.endswith("context_length"):
            continue
        if isinstance(value, int) and value > most:
            raise ModelError(
                f"{path} cannot be right: it states {escape_controls(key)} = {value:,}"
            )
