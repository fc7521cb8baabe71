"""Dates and times of Arrow as ISO 8601, in all of its units and without pandas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from schemax.io.storage import optional

_EPOCH = datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_OUTSIDE = "a date outside the years 1 to 9999"


def time_text(scalar: Any) -> Any:
    """The value of an Arrow scalar, with texts in place of the dates and times in it.

    Raises ValueError for dates outside the years 1 to 9999 and times outside a day, and what
    pyarrow raises: ValueError, OverflowError, LookupError.
    """
    if not scalar.is_valid:
        return None
    kind, types = scalar.type, optional("pyarrow", "a table").types
    if not holds_times(kind):
        return scalar.as_py()
    if types.is_timestamp(kind):
        return _moment(scalar.value, kind.unit, kind.tz)
    if types.is_date32(kind):
        return _day(scalar.value)
    if types.is_date64(kind):
        return _day(scalar.value // (1000 * _DAY))
    if types.is_time(kind):
        return _clock(scalar.value, kind.unit)
    if types.is_struct(kind):
        return {key: time_text(item) for key, item in scalar.items()}
    if types.is_map(kind):
        return [tuple(time_text(entry).values()) for entry in scalar.values]
    if isinstance(scalar, Sequence):
        return [time_text(item) for item in scalar]
    return time_text(scalar.value)  # of what only wraps another one, such as a dictionary's index


@lru_cache(maxsize=1024)
def holds_times(kind: Any) -> bool:
    """Whether values of an Arrow type are dates or times, or have such in them."""
    types = optional("pyarrow", "a table").types
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return True
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    inner += [
        found for name in ("value_type", "storage_type") if (found := getattr(kind, name, None))
    ]
    return any(map(holds_times, inner))


def _moment(value: int, unit: str, zone: str | None) -> str:
    seconds, rest = divmod(value, _PER_SECOND[unit])
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
        if zone is not None:
            moment = moment.replace(tzinfo=UTC).astimezone(_time_zone(zone))
    except OverflowError:
        raise ValueError(_OUTSIDE) from None
    local = moment.replace(tzinfo=None).isoformat()
    return f"{local}{_fraction(rest, unit)}{moment.isoformat()[len(local) :]}"


def _day(days: int) -> str:
    try:
        return date.fromordinal(_EPOCH.toordinal() + days).isoformat()
    except (OverflowError, ValueError):
        raise ValueError(_OUTSIDE) from None


def _clock(value: int, unit: str) -> str:
    seconds, rest = divmod(value, _PER_SECOND[unit])
    if not 0 <= seconds < _DAY:
        raise ValueError("a time outside a day")
    return f"{(_EPOCH + timedelta(seconds=seconds)).time().isoformat()}{_fraction(rest, unit)}"


def _fraction(rest: int, unit: str) -> str:
    """Of a second: none, six digits, or nine where six are too few, as pandas writes them."""
    if not rest:
        return ""
    digits = f"{rest * 10**9 // _PER_SECOND[unit]:09}"
    return f".{digits.removesuffix('000')}"


@lru_cache(maxsize=1024)
def _time_zone(name: str) -> Any:
    return optional("pyarrow", "a table").lib.string_to_tzinfo(name)
