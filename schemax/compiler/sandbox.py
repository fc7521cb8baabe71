"""The sandbox of templates, which anyone may have written: no way to Python, bounded time and size.

Jinja's own sandbox keeps templates from unsafe attributes and calls. This one also bounds the
output, every intermediate text and the time. A model's folder brings templates of its own, which
must not stop a process that loads it.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_CHARACTERS = 1_000_000
"""The most characters of a template, of its output, and of every intermediate text."""

MOST_SECONDS = 5.0
"""The most seconds of processor time to render a template once."""

# The most bits of a whole number that a template computes.
_MOST_BITS = 10_000
# A width of five digits or more in a format, which pads a text beyond 9,999 characters.
_WIDE = re.compile(r"%[^a-zA-Z%]*[0-9]{5}|\{[^{}]*[0-9]{5}")
_WIDTH_GIVEN = re.compile(r"%[^a-zA-Z%]*\*|\{[^{}]*\{")


class TooMuch(jinja2.TemplateRuntimeError):
    """A template exceeds its bounds."""


def from_text(text: str, undefined: type[jinja2.Undefined]) -> jinja2.Template:
    """Compiles a template in the sandbox. Raises jinja2.TemplateError."""
    if len(text) > MOST_CHARACTERS:
        raise TooMuch(f"it has more than {MOST_CHARACTERS:,} characters")
    try:
        return _Sandbox(undefined).from_string(text)
    except jinja2.TemplateError:
        raise
    except (RecursionError, MemoryError) as error:
        raise TooMuch("it is nested too deeply") from error
    except (SyntaxError, ValueError, OverflowError) as error:
        raise jinja2.TemplateSyntaxError(str(error), 1) from error


@contextmanager
def deadline() -> Iterator[None]:
    """Raises TooMuch within a template that takes too long.

    The interpreter checks the time at every line of the template's compiled Python. This requires
    no other thread, nor a signal, which only the main thread could take.
    """
    ends = time.thread_time() + MOST_SECONDS

    def check(*_: Any) -> Any:
        if time.thread_time() > ends:
            raise TooMuch(f"it takes more than {MOST_SECONDS:g} seconds")
        return check

    before = sys.gettrace()
    sys.settrace(check)
    try:
        yield
    finally:
        sys.settrace(before)


class _Generation(Extension):
    """`{% generation %}`, which marks trained text in chat templates; here it marks nothing."""

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Generator(CodeGenerator):
    """Makes the environment join operands of `~`, for which Jinja has no hook."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        self.write("environment.concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")


class _Sandbox(ImmutableSandboxedEnvironment):
    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, undefined: type[jinja2.Undefined]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=undefined,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        self.filters.update({name: _bounded(name, f) for name, f in self.filters.items()})
        # Names that chat templates in the wild rely on.
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        kept, size = [], 0
        for part in parts:
            size += len(part)
            _check_size(size)
            kept.append(part)
        return "".join(kept)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        elif isinstance(left, int) and isinstance(right, int):
            growth = left.bit_length() + right.bit_length()
            if operator == "**":
                growth = left.bit_length() * abs(right)
            if operator != "%" and growth > _MOST_BITS:
                raise TooMuch("it computes a number that is too large")
        elif operator == "*":
            times = right if isinstance(right, int) else left
            _check_size(max(_length(left), _length(right)) * (times if _is_whole(times) else 1))
        elif operator == "+":
            _check_size(_length(left) + _length(right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(called, "__self__", None)
        if isinstance(owner, str):
            _check_growth(called.__name__, owner, (*args, *kwargs.values()))
        return super().call(context, called, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        inner = super().wrap_str_format(value)
        if inner is None:
            return None

        def bounded(*args: Any, **kwargs: Any) -> str:
            _check_format(value.__self__, (*args, *kwargs.values()))
            return inner(*args, **kwargs)

        return bounded


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter with a check, before it runs, of the size that it would write."""
    # Some filters are passed the environment before the value.
    place = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            _check_growth(name, args[place], (*args[place + 1 :], *kwargs.values()))
        return function(*args, **kwargs)

    return call


def _check_growth(name: str, value: Any, args: Sequence[Any]) -> None:
    """Raises TooMuch for a method or filter of texts that would write too much.

    All others write about as much as they are given.
    """
    widest = max(filter(_is_whole, args), default=0)
    longest = max(map(_length, args), default=0)
    if name in ("center", "ljust", "rjust", "zfill", "wordwrap"):
        _check_size(widest)
    elif name in ("indent", "expandtabs", "tojson"):
        lines = len(re.findall(r"[\n\t]", value)) if isinstance(value, str) else _length(value)
        _check_size((lines + 1) * max(widest, longest if name == "indent" else 0))
    elif name == "replace" and len(args) > 1:
        old, new = map(str, args[:2])
        _check_size(str(value).count(old) * len(new))
    elif name == "join":
        _check_size(max(_length(value), 1) * max(longest, 1))
        parts = (part for some in (value, *args) if isinstance(some, list) for part in some)
        _check_size(sum(map(_length, parts)))
    elif name == "format":
        _check_format(str(value), args)
    elif name in ("batch", "slice"):
        _check_size(widest)


def _check_format(text: str, args: Sequence[Any]) -> None:
    """Raises TooMuch for a width that pads too far, and for texts that are inserted too often."""
    if _WIDE.search(text):
        raise TooMuch("it formats with a width that is too large")
    if _WIDTH_GIVEN.search(text):
        _check_size(max(filter(_is_whole, args), default=0))
    places = text.count("%") + text.count("{")
    _check_size(places * max(map(_length, args), default=0))


def _check_size(size: float) -> None:
    if size > MOST_CHARACTERS:
        raise TooMuch(f"it writes more than {MOST_CHARACTERS:,} characters")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, Mapping)) else 0


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
