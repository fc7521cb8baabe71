"""What object stores raise of their own, as errors that a user can mend.

Missing credentials, an endpoint that does not answer, a bucket that is no name: each store's
package has classes of its own for these, which are neither OSErrors nor ours.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, cast

from schemax.errors import InputError


@contextmanager
def told(place: str) -> Generator[None, None, None]:
    """Turns what is no OSError into an InputError that names the place and the kind of error.

    OSErrors say of themselves what they are, and callers tell some of them apart.
    """
    try:
        yield
    except (OSError, InputError):
        raise
    except Exception as error:
        said = str(error) or "no reason is given"
        if not isinstance(error, (ImportError, ValueError)):  # which say all in their text
            said = f"{type(error).__name__}: {said}"
        raise InputError(f"cannot reach {place}: {said}") from error


@contextmanager
def _reached(place: str) -> Generator[None, None, None]:
    """The same of OSErrors too, but of those that answer a question."""
    try:
        with told(place):
            yield
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        raise
    except OSError as error:
        raise InputError(f"cannot reach {place}: {error.strerror or error}") from error


class Store:
    """A file system of fsspec, all of whose errors are OSErrors or InputErrors.

    place: the address that it was asked for, for messages.
    """

    def __init__(self, system: Any, place: str) -> None:
        self._system, self._place = system, place

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._system, name)
        return self._calling(found) if callable(found) else found

    def open(self, path: str, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
        with told(self._place):
            raw = _StoreFile(self._system.open(path, mode), self._place)
        return cast(BinaryIO, (io.BufferedReader if mode == "rb" else io.BufferedWriter)(raw))

    def _calling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            with _reached(self._place):
                return method(*args, **options)

        return call


class _StoreFile(io.RawIOBase):
    """A file of a store, the same way. fsspec's own cannot read a line of bounded length."""

    def __init__(self, handle: Any, place: str) -> None:
        self._handle, self._place = handle, place

    def readable(self) -> bool:
        return bool(self._handle.readable())

    def writable(self) -> bool:
        return bool(self._handle.writable())

    def seekable(self) -> bool:
        return bool(self._handle.seekable())

    def readinto(self, buffer: Any, /) -> int:
        with told(self._place):
            data = self._handle.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any, /) -> int:
        with _reached(self._place):
            return int(self._handle.write(bytes(data)))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        with told(self._place):
            return int(self._handle.seek(offset, whence))

    def tell(self) -> int:
        return int(self._handle.tell())

    def close(self) -> None:
        if not self.closed:
            try:
                with _reached(self._place):
                    self._handle.close()
            finally:
                super().close()
