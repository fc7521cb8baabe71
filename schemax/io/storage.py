"""Where files lie: on a local disk, or anywhere that fsspec knows the way to.

A place is a path, or an address such as `s3://bucket/key`. What is written to one appears there
whole or not at all.
"""

from __future__ import annotations

import errno
import glob
import importlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from schemax.errors import InputError

EXTRA = "tables"

# Windows' drive letters are one letter long.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_WILDCARDS = re.compile(r"[*?\[]")


def optional(module: str, purpose: str, extra: str = EXTRA) -> Any:
    """A module of an extra. Raises InputError, which says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f'{purpose} needs {package}, which is not installed: pip install "schemax-hpd[{extra}]"'
        ) from error


def is_remote(name: str) -> bool:
    """Whether fsspec is asked for it; file:// is not remote, but the same as a path."""
    return bool(_ADDRESS.match(name)) and not name.startswith("file://")


def local_path(name: str) -> Path:
    """The path of a place that is not remote; links are followed, so that they stay links."""
    return Path(name.removeprefix("file://")).resolve()


def filesystem(name: str) -> tuple[Any, str]:
    """The fsspec file system of an address, and the path in it. Raises InputError."""
    core = optional("fsspec.core", name)
    try:
        system, path = core.url_to_fs(name)
    except (ImportError, ValueError) as error:  # no such protocol, or its package is not there
        raise InputError(f"cannot reach {name}: {error}") from error
    return system, path


def expand(name: str) -> list[str]:
    """The files that a name stands for, sorted: itself, or what its wildcards match.

    A file whose name holds such characters is meant itself. Raises InputError for no match.
    """
    if not _WILDCARDS.search(name):
        return [name]
    if is_remote(name):
        system, path = filesystem(name)
        found = sorted(system.unstrip_protocol(one) for one in system.glob(path))
    elif os.path.exists(name):
        return [name]
    else:
        found = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
    if not found:
        raise InputError(f"cannot read {name}: no file matches")
    return found


@contextmanager
def reading(name: str) -> Iterator[BinaryIO]:
    """The bytes of a place. Raises InputError where it cannot be opened."""
    try:
        if is_remote(name):
            system, path = filesystem(name)
            handle = cast(BinaryIO, system.open(path, "rb"))
        else:
            handle = open(name.removeprefix("file://"), "rb")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from error
    with handle:
        yield handle


@contextmanager
def writing(name: str, scratch: str | None = None) -> Iterator[BinaryIO]:
    """A new file that gets its name when all is written and on the disk, else never.

    scratch: what it is called before, on the same file system; None chooses a name beside it.

    Raises InputError where it cannot be opened.
    """
    if is_remote(name):
        with _writing_remote(name, scratch) as remote:
            yield remote
        return
    path = local_path(name)
    partial = local_path(scratch or f"{path}.{os.getpid()}.tmp")
    try:
        handle = open(partial, "wb")  # noqa: SIM115  # only opening it may fail like this
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}") from error
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        if path.exists():
            shutil.copymode(path, partial)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def _writing_remote(name: str, scratch: str | None) -> Iterator[BinaryIO]:
    """An upload that is cut short still leaves an object in some stores, so it has another name."""
    system, path = filesystem(name)
    partial = filesystem(scratch)[1] if scratch else f"{path}.{os.getpid()}.tmp"
    try:
        handle = system.open(partial, "wb")
    except OSError as error:
        raise InputError(f"cannot write {name}: {error}") from error
    try:
        with handle:
            yield handle
        system.mv(partial, path)
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            system.rm(partial)
        raise


def check_folder(name: str) -> None:
    """Raises InputError where no file of that name could be made."""
    if is_remote(name):
        filesystem(name)
        return
    path = local_path(name)
    if path.is_dir():
        raise InputError(f"cannot write {name}: {os.strerror(errno.EISDIR)}")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {name}: {os.strerror(errno.ENOENT)}")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write {name}: {os.strerror(errno.EACCES)}")


def sync_folder(path: Path) -> None:
    """Makes new and gone names in a folder survive a power cut."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass  # some network file systems cannot, and do it by themselves
    finally:
        os.close(handle)


def suffixes(name: str) -> tuple[str, str]:
    """The format's and the compression's suffix, in lower case: (".jsonl", ".gz"), (".csv", "")."""
    found = [one.lower() for one in PurePosixPath(name.replace(os.sep, "/")).suffixes[-2:]]
    compression = found.pop() if found and found[-1] in (".gz", ".zst") else ""
    return (found[-1] if found else "", compression)
