"""Errors of object stores as errors that a user can mend.

Missing credentials, an endpoint that does not answer, a bucket that is no name: each store's
package has classes of its own for these, which are neither OSErrors nor ours.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, cast

from schemax.errors import InputError

_ANSWERS = (FileNotFoundError, FileExistsError, NotADirectoryError)


@contextmanager
def reaching(
    place: str, answers: tuple[type[Exception], ...] = _ANSWERS
) -> Generator[None, None, None]:
    """Turns errors into an InputError that names the place; but errors that are answers."""
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
        elif not isinstance(error, (ImportError, ValueError)):  # which say all in their text
            said = f"{type(error).__name__}: {said}"
        raise InputError(f"cannot reach {place}: {said}") from error


class _Reached:
    """An object of fsspec whose methods raise InputErrors, and answers.

    place: an address, for messages. answers: errors that whoever calls can tell apart.
    """

    def __init__(
        self, inner: Any, place: str, answers: tuple[type[Exception], ...] = _ANSWERS
    ) -> None:
        self._inner, self._place, self._answers = inner, place, answers

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._calling(found) if callable(found) else found

    def _calling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            with reaching(self._place, self._answers):
                return method(*args, **options)

        return call


class Store(_Reached):
    """A file system of fsspec."""

    def open(self, path: str, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
        """A handle with a buffer of Python's, since fsspec's has no lines of bounded length."""
        answers = (OSError,) if mode == "rb" else _ANSWERS  # a reader says how far it came
        with reaching(self._place):
            raw: Any = _Reached(self._inner.open(path, mode), self._place, answers)
        return cast(BinaryIO, (io.BufferedReader if mode == "rb" else io.BufferedWriter)(raw))
