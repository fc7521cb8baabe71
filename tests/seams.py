"""The one place where tests reach for private names of schemax.

Each is what no public name shows or sets: bounds that a test makes small, memory that has to be
empty again, parts that a test watches. Whoever changes the insides of schemax mends this file, and
no test; test_seams.py sees to it that no other file has such a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schemax import Extractor, formats
from schemax.base.calibration import Calibration
from schemax.servers.client import Client

_PLACES = {
    # the engine
    "requests that a call gives ahead": ["schemax.runtime.engine.shared._AHEAD"],
    "results that a call leaves unread": ["schemax.runtime.engine.shared._UNREAD"],
    "layouts of a lane": ["schemax.runtime.engine.shared._MOST_LAYOUTS"],
    "prompts of a window": [
        "schemax.runtime.engine.decode._FIRST_WINDOW",
        "schemax.runtime.engine.decode._WINDOW",
    ],
    "share of a pass for drafts": ["schemax.runtime.engine.drafts._SHARE"],
    "passes until more is tried": ["schemax.runtime.engine.limits._BACKOFF"],
    "texts that a device checks again": ["schemax.runtime.sampling.draw._AGAIN"],
    "bytes of served prefixes": ["schemax.runtime.models.model._SERVED_BYTES"],
    "scores of plain attention": ["schemax.runtime.attention.kernels._MOST_SCORES"],
    "weights of a model that is packed": ["schemax.runtime.models.packed._LEAST"],
    "least speed-up of packed products": ["schemax.runtime.models.packed._FEW"],
    "fetching of kernels": ["schemax.runtime.models.loading.hub_kernels._fetch"],
    # servers
    "seconds until a first retry": ["schemax.servers.client._FIRST_DELAY"],
    # files
    "bytes of a file's edges": ["schemax.io.fingerprint._EDGE"],
    "ids that are known": ["schemax.io.summary._MOST_KNOWN"],
    "kinds of errors that are counted": ["schemax.io.summary._MOST_COUNTED"],
    # commands
    "categories of a column": ["schemax.commands.auto_schemas._MOST_CATEGORIES"],
    "seconds of the demo's baseline": ["schemax.commands.demo._BASELINE_SECONDS"],
    "cost of a listing": ["schemax.commands.demo._cost"],
}
"""What tests put something else in the place of, by what it is."""


def replaced(patch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    """name: of `_PLACES`."""
    for place in _PLACES[name]:
        patch.setattr(place, value)


def pass_tokens() -> dict[str, int]:
    """How many tokens a pass has at most, by device: to be changed in place."""
    from schemax.runtime.engine import limits

    return limits._PASS_TOKENS


def calls_of(extractor: Extractor) -> Sequence[Any]:
    """Calls that share an extractor's passes right now."""
    return extractor._engine._calls


def engine_of(extractor: Extractor) -> Any:
    return extractor._engine


def assert_all_is_given_back(scheduler: Any) -> None:
    """Nothing of what has been decoded takes room."""
    assert scheduler.kv.num_taken == scheduler.table._numbers.num_taken == 0
    assert scheduler._footprint == scheduler._num_documents == scheduler.num_repeated == 0
    assert not scheduler.table.alternatives
    assert not scheduler._sampler.grammars._states


def flight() -> Any:
    """The class of what has a pass under way: `admit`, `begin`, `finish`."""
    from schemax.runtime.engine.stream import _Flight

    return _Flight


def watch_prefixes(patch: pytest.MonkeyPatch, seen: Callable[[int], None]) -> None:
    """Tells how many instructions are held, whenever one was read."""
    from schemax.runtime.engine.stream import _Prefixes

    usual = _Prefixes.read

    def read(self: Any, scheduler: Any) -> None:
        usual(self, scheduler)
        seen(len(self.lengths))

    patch.setattr(_Prefixes, "read", read)


def prefixes_of(model: Any) -> list[Any]:
    """Keys and values of the prefixes that a model keeps."""
    return list(model._prefixes.values())


def keep_no_prefixes(patch: pytest.MonkeyPatch, model: Any) -> None:
    """As few as can be."""
    from schemax.runtime.models.model import _prefixes

    patch.setattr(model, "_prefixes", _prefixes(1))


def watch_second_choices(patch: pytest.MonkeyPatch, seen: Callable[[], None]) -> None:
    """Tells whenever tokens are chosen again, since the first ones were refused."""
    from schemax.runtime.sampling.draw import Draw

    usual = Draw._choose_again

    def choose_again(*arguments: Any) -> None:
        seen()
        usual(*arguments)

    patch.setattr(Draw, "_choose_again", choose_again)


def kernel_for(*arguments: Any, **options: Any) -> Any:
    """The kernel of attention that is taken for tensors."""

    from schemax.runtime.attention import kernels

    return kernels._kernel_for(*arguments, **options)


def kernel_works(*arguments: Any) -> bool:

    from schemax.runtime.attention import kernels

    return kernels._works(*arguments)


def forget_kernels() -> None:
    """So that each is tried out again."""

    from schemax.runtime.attention import kernels

    kernels._works.cache_clear()


def calibration_of(source: Any) -> Calibration | None:
    """The calibration that comes with a model."""
    from schemax.runtime.models.loading.load import _calibration

    return _calibration(source)


def headers_of(client: Client) -> Any:
    """What every request to a server says."""
    return client._http.headers


def forget_formats(patch: pytest.MonkeyPatch) -> None:
    """Formats that are registered from now on are gone after the test."""
    patch.setattr(formats, "_FORMATS", dict(formats._FORMATS))


def trees_made() -> int:
    """How many schemas have been looked at for the first time."""
    from schemax.results import fields

    return int(fields._field_tree_of.cache_info().misses)
