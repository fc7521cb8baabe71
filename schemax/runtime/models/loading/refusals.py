"""Turns every cause for which loading fails into a ModelError of one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any

from safetensors import SafetensorError

from schemax.errors import ModelError
from schemax.runtime.slots.memory import is_out_of_memory


@contextmanager
def refusing(name: str, what: str = "cannot be loaded") -> Iterator[None]:
    """Turns all errors into ModelError: readers of damaged files may raise anything."""
    try:
        yield
    except ModelError:
        raise
    except (json.JSONDecodeError, SafetensorError) as error:
        raise ModelError(
            f"{name} holds a damaged file, or a pointer of Git LFS in place of a file that was not "
            f"fetched ({brief(error)}); download it again"
        ) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise ModelError(
                f"{name} does not fit into the memory of its device; use `quantization`, a "
                "`device_map` or a smaller model"
            ) from error
        raise ModelError(f"{name} {what}: {brief(error)}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that holds an object. Raises ValueError for any other file."""
    written = json.loads(path.read_text("utf-8"))
    if not isinstance(written, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return written


def need(package: str, name: str, purpose: str, install: str) -> None:
    """Raises ModelError for a package that is not installed. install: the argument for pip."""
    if find_spec(package) is None:
        raise ModelError(
            f"{name}: {purpose} needs {package}, which is not installed; pip install {install}"
        )


def some(names: list[str]) -> str:
    """The first three names, as a text."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def brief(error: BaseException) -> str:
    """An error's reason in one line: some errors put it last, others add pages of advice."""
    return shorten(str(error), 400, placeholder=" ...") or type(error).__name__
