"""_OUT.keys: the keys of a finished table's rows, in their order, by which a later run knows them.

It begins with a digest of the table, without which keys and rows might be of different runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b, file_digest
from itertools import repeat
from typing import Any, BinaryIO

from schemax.errors import InputError
from schemax.io.outputs import is_table, is_table_folder
from schemax.io.storage import expand, is_file, reading, sidecar, writing

SIZE = 16
"""Bytes of a key; in rows a key is written in twice as many digits."""

_NONE = bytes(SIZE)  # stands for a row without a key


def keys_name(output: str) -> str:
    return sidecar(output, ".keys")


def write_keys(output: str, keys: bytes, scratch: str) -> None:
    """Keeps the keys of a finished table's rows, with a digest of the table that they belong to."""
    with writing(keys_name(output), scratch) as handle:
        handle.write(_digest_of(output) + keys)


def add_key(keys: bytearray, key: str | None) -> None:
    keys += _NONE if key is None else bytes.fromhex(key)


def keys_of(output: str) -> Iterator[str | None]:
    """The keys of a table's rows, without end; None where a row has none, or its key is not known.

    Keys that are not those of the table, which was replaced by other means, are not known.
    """
    if is_file(keys_name(output)) and is_table(output):
        with reading(keys_name(output)) as handle:
            if _read(handle, output) == _digest_of(output):
                while len(key := _read(handle, output)) == SIZE:
                    yield None if key == _NONE else key.hex()
    yield from repeat(None)


def _digest_of(name: str) -> bytes:
    """Of a file; of a folder, of its files and their names."""
    handle: Any
    if not is_table_folder(name):
        with _told(name), reading(name) as handle:
            return file_digest(handle, lambda: blake2b(digest_size=SIZE)).digest()
    whole = blake2b(digest_size=SIZE)
    for file in expand(name):
        whole.update(file.removeprefix(name).encode("utf-8", "surrogateescape"))
        whole.update(_digest_of(file))
    return whole.digest()


def _read(handle: BinaryIO, output: str) -> bytes:
    with _told(keys_name(output)):
        return handle.read(SIZE)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Names the file that cannot be read to its end."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from error
