"""The command `schemax`: its verbs and exit status.

Exit status: 0 done; 1 all is written, and more rows failed than allowed; 2 nothing or not all was
written: bad usage, or input, a store or a model that stops the run; 3 the same, by a fault of
schemax itself; 130 interrupted; 141 nobody reads the output any more; 143 terminated.
"""

from __future__ import annotations

import gc
import io
import math
import os
import sys
import traceback
from importlib import import_module
from importlib.machinery import SourceFileLoader
from inspect import cleandoc
from pathlib import Path
from types import CodeType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from schemax.base import resources
from schemax.base.messages import say
from schemax.base.process import Terminated, raise_again, share_processors
from schemax.errors import FULL_DISK, SchemaxError

_SMALLER = {"train": "--batch-tokens, and a larger --gradient-accumulation for the same steps"}

_LARGEST = {"seed": 2**64 - 1}

_BAD_USAGE = 2
_FAULT = 3
_INTERRUPTED = 130
_BROKEN_PIPE = 141
_TERMINATED = 143


# Verbs, in the order of the help, and their modules.
_MODULES = {
    **{"demo": "demo", "extract": "extract", "merge": "tables", "report": "tables"},
    **{"explain": "explain", "check": "check", "trace": "trace", "discover": "discover"},
    **{"fit": "fit", "schemas": "explain", "doctor": "doctor", "train": "train"},
    **{"calibrate": "calibrate", "evaluate": "evaluate", "bench": "bench", "serve": "serve"},
}
_APPEARANCE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",  # the other modes keep the line breaks of docstrings
}


class Verb(TyperCommand):
    """A command whose module is imported when it runs: the help of all verbs needs none."""

    def __init__(self, name: str) -> None:
        super().__init__(name, help=_docstring(name), rich_markup_mode="markdown")
        self.verb = name

    @property
    def command(self) -> Any:
        module = import_module(f"schemax.commands.{_MODULES[self.verb]}")
        alone = typer.Typer(**_APPEARANCE)
        alone.command(cls=getattr(module, "Command", None))(getattr(module, self.verb))
        command = typer.main.get_command(alone)
        # Typer's ranges accept NaN, and options without a range accept any number.
        for option in command.params:
            option.callback = option.callback or _usable
        return command

    def make_context(self, *args: Any, **settings: Any) -> Any:
        return self.command.make_context(*args, **settings)


def _docstring(verb: str) -> str:
    """The docstring of a verb, from its module's compiled code: importing that takes long."""
    name = f"schemax.commands.{_MODULES[verb]}"
    path = Path(__file__).with_name(f"{_MODULES[verb]}.py")
    module = SourceFileLoader(name, str(path)).get_code(name)
    assert module is not None
    functions = (constant for constant in module.co_consts if isinstance(constant, CodeType))
    return cleandoc(next(code for code in functions if code.co_name == verb).co_consts[0])


class Verbs(TyperGroup):
    """Turns the errors that a user can mend into one line and an exit status."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name in _MODULES:
            self.add_command(Verb(name))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_stdout()
            status = _BROKEN_PIPE
        except KeyboardInterrupt as error:
            is_signal = isinstance(error, Terminated)
            _explain("terminated" if is_signal else "interrupted", error)
            status = _TERMINATED if is_signal else _INTERRUPTED
        except (SchemaxError, OSError) as error:
            reason = str(error)
            if isinstance(error, OSError) and error.filename is not None:
                did = "write" if error.errno in FULL_DISK else "open"
                reason = f"cannot {did} {error.filename}: {error.strerror}"
            _explain(f"error: {reason}", error)
            status = _BAD_USAGE
        except (typer.Exit, typer.Abort):  # RuntimeErrors too, which must not cost torch
            raise
        except RuntimeError as error:
            from schemax.runtime.slots.memory import is_out_of_memory

            if not is_out_of_memory(error):
                raise
            smaller = _SMALLER.get(ctx.invoked_subcommand, "--batch-size")
            _explain(f"error: out of memory; use a smaller {smaller}", error)
            status = _BAD_USAGE
        raise typer.Exit(status)


def _usable(context: Any, option: Any, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number", ctx=context, param=option)
    if isinstance(value, int) and abs(value) > _LARGEST.get(option.name, sys.maxsize):
        raise typer.BadParameter(f"{value} is too large", ctx=context, param=option)
    return value


def _explain(text: str, error: BaseException) -> None:
    say(text)
    for note in getattr(error, "__notes__", ()):
        say(note)


def _drop_stdout() -> None:
    """Redirects stdout to nowhere, since Python flushes it once more at the end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        return  # no real file behind it, so nothing to flush


app = typer.Typer(
    name="schemax",
    cls=Verbs,
    no_args_is_help=True,
    help="Extracts typed attributes from texts, all fields of many texts at once.",
    **_APPEARANCE,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"schemax {resources.version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None: ...


def _replace_closed_streams() -> None:
    """Replaces closed streams: stderr by one that is lost, stdout by one without a reader.

    A closed stdin stays None, which readers refuse. No file gets the number of a closed stream, so
    that no library writes messages into it.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(_UnreadBytes(), encoding="utf-8", write_through=True)


class _UnreadBytes(io.BufferedIOBase):
    """A stream without a reader: the first write raises BrokenPipeError."""

    name = "<stdout>"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        raise BrokenPipeError("stdout is closed")


def main() -> None:
    """The entry point of the console script."""
    raise_again()
    _replace_closed_streams()
    share_processors()
    # Rows under way are many small objects without cycles: frequent collections free nothing.
    gc.set_threshold(50_000, 20, 20)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A narrow console encoding should cost a character, not the run.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:  # from --help, which is shown before a verb begins
        sys.exit(_BROKEN_PIPE)
    except Exception:  # Python's own status, 1, would mean that all rows are written
        traceback.print_exc()
        say("error: this is a fault of schemax itself; please report it with the lines above")
        sys.exit(_FAULT)
