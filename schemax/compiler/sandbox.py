"""The sandbox of templates, which anyone may have written: no way to Python, bounded work and time.

Jinja's own sandbox keeps templates from unsafe attributes and calls. This one also counts what
operations may write, before they do, and checks the time. A model's folder brings templates of its
own, which must not stop a process that loads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import wraps
from itertools import chain
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from schemax.base.process import at_most

MOST_CHARACTERS = 1_000_000  # of a template
MOST_STEPS = 20_000_000  # of a template: characters that its operations may write
MOST_SECONDS = 5.0  # of processor time, to render a template once
_OUTPUT = 20  # steps of a character of the output


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


def deadline() -> AbstractContextManager[None]:
    """Raises TooMuch within a template that takes too long."""
    return at_most(
        MOST_SECONDS, TooMuch(f"it takes more than {MOST_SECONDS:g} seconds"), lines=True
    )


class _Generation(Extension):
    """`{% generation %}`, which marks trained text in chat templates; here it marks nothing."""

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _counted(kind: str) -> Callable[[Any, Any, Frame], None]:
    visit = getattr(CodeGenerator, f"visit_{kind}")

    def counted(self: CodeGenerator, node: Any, frame: Frame) -> None:
        is_value = getattr(node, "ctx", "load") == "load"
        self.write("environment.counted(" if is_value else "")
        visit(self, node, frame)
        self.write(")" if is_value else "")

    return counted


class _Generator(CodeGenerator):
    """Counts `~`, and literals, which may hold a value many times: Jinja has no hook for these."""

    visit_Dict = _counted("Dict")  # type: ignore[assignment]  # noqa: N815
    visit_List = _counted("List")  # type: ignore[assignment]  # noqa: N815
    visit_Tuple = _counted("Tuple")  # type: ignore[assignment]  # noqa: N815

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        self.write("''.join(map(str, ")
        self.visit_Tuple(nodes.Tuple(node.nodes, "load"), frame)
        self.write("))")


class _Namespace(jinja2.utils.Namespace):
    __repr__ = object.__repr__  # without its values, which may hold a namespace many times


class _Sandbox(ImmutableSandboxedEnvironment):
    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, undefined: type[jinja2.Undefined]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=undefined,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            # With a context nothing is computed while compiling, which no deadline ends.
            finalize=jinja2.pass_context(lambda _, value: value),
            optimized=False,
        )
        self._steps = 0
        self.filters.update({name: self._bounded_function(f) for name, f in self.filters.items()})
        del self.filters["sum"]  # takes the square of the number of lists to add these up
        self.globals["namespace"] = _Namespace
        # Names that chat templates in the wild rely on.
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)

    def spend(self, *operands: Any) -> None:
        """Counts an operation, which writes at most the product of its two largest operands."""
        *_, second, first = sorted([1, 1, *(1 + _size(operand) for operand in operands)])
        self._steps += first * second
        if self._steps > MOST_STEPS:
            raise TooMuch(f"it takes more than {MOST_STEPS:,} steps")

    def counted(self, value: Any, times: int = 0) -> Any:
        self.spend(value, times)
        return value

    def concat(self, parts: Iterable[str]) -> str:
        return "".join([self.counted(part, _OUTPUT) for part in parts])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            self.spend(left, *(right if isinstance(right, tuple) else (right,)), *_widths(left))
        elif operator == "+":
            self.spend([left, right])
        elif isinstance(left, int) and isinstance(right, int):  # as large as their bits
            self.spend([left], right if operator == "**" else [right])
        else:
            self.spend(left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(getattr(called, "__wrapped__", called), "__self__", None)
        if isinstance(owner, (str, bytes, int, float, Collection)):
            called = self._bounded_function(called, owner)
        self.spend([*args, *kwargs.values()])
        return super().call(context, called, *args, **kwargs)

    def _bounded_function(self, function: Callable[..., Any], *owner: Any) -> Callable[..., Any]:
        """A filter or method, counted before it runs, with lists in the place of iterators."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            operands = [*owner, *(args := tuple(map(_as_list, args))), *kwargs.values()]
            if "format" in function.__name__:
                operands += (n for text in operands if isinstance(text, str) for n in _widths(text))
            self.spend(*operands)
            return _as_list(function(*args, **kwargs))

        return call


def _size(value: Any, *, inner: bool = False) -> int:
    """The characters and items of a value; of a number itself, or its bits within a list."""
    if isinstance(value, int):
        return value.bit_length() if inner else abs(value)
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, (jinja2.Undefined, Context)) or not isinstance(value, Collection):
        return 0
    items = chain(value, value.values()) if isinstance(value, Mapping) else value
    return len(value) + sum(_size(item, inner=True) for item in items)


def _widths(text: str) -> list[int]:
    """The numbers in a format, which may be widths."""
    return [int(digits) for digits in re.findall("[0-9]{1,9}", text)]


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
