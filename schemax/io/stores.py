"""Turns errors of object stores into InputError.

For missing credentials, endpoints that do not answer and invalid names of buckets, each store's
package raises classes of its own, which are neither OSErrors nor ours.
"""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, cast

from schemax.errors import InputError

_ANSWERS = (FileNotFoundError, FileExistsError, NotADirectoryError)


@contextmanager
def reaching(
    place: str, answers: tuple[type[Exception], ...] = _ANSWERS
) -> Generator[None, None, None]:
    """Turns errors into an InputError that names the place. answers: errors that pass unchanged."""
    try:
        yield
    except InputError:
        raise
    except answers:
        raise
    except Exception as error:
        said = str(error) or "no reason is given"
        if isinstance(error, OSError):
            said = error.strerror or said
        elif not isinstance(error, (ImportError, ValueError)):  # their texts suffice
            said = f"{type(error).__name__}: {said}"
        raise InputError(f"cannot reach {place}: {said}") from error


class _Reached:
    """An object of fsspec whose methods raise InputError, except for `answers`.

    place: an address, for messages. answers: errors that the caller distinguishes.
    """

    def __init__(
        self, inner: Any, place: str, answers: tuple[type[Exception], ...] = _ANSWERS
    ) -> None:
        self._inner, self._place, self._answers = inner, place, answers

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return reaching(self._place, self._answers)(found) if callable(found) else found


class Store(_Reached):
    """A file system of fsspec."""

    def open(self, path: str, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
        """Opens a file with Python's buffer, since fsspec's cannot bound the length of lines."""
        answers = (OSError,) if mode == "rb" else _ANSWERS  # readers report how far they came
        with reaching(self._place):
            raw: Any = _Reached(self._inner.open(path, mode), self._place, answers)
        return cast(BinaryIO, (io.BufferedReader if mode == "rb" else io.BufferedWriter)(raw))
