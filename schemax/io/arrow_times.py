"""Dates and times of Arrow as ISO 8601, in all of its units and without pandas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from schemax.io.storage import optional

_DAY = {unit: 86_400 * 1000**place for place, unit in enumerate(("s", "ms", "us", "ns"))}


def time_text(scalar: Any) -> Any:
    """The value of an Arrow scalar, with texts in place of the dates and times in it.

    Raises ValueError for dates outside the years 1 to 9999 and times outside a day, and what
    pyarrow raises: ValueError, OverflowError, LookupError.
    """
    kind, types = scalar.type, optional("pyarrow", "a table").types
    if not scalar.is_valid or not holds_times(kind):
        return scalar.as_py()
    if types.is_temporal(kind):
        return _iso(scalar)
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


def _iso(scalar: Any) -> str:
    """With no digits of a second, six, or nine where six are too few, as pandas writes them."""
    pyarrow, kind = optional("pyarrow", "a table"), scalar.type
    is_time, nanoseconds, rest = pyarrow.types.is_time(kind), 0, timedelta()
    unit = kind.unit if is_time or pyarrow.types.is_timestamp(kind) else ""
    if is_time and not 0 <= scalar.value < _DAY[unit]:
        raise ValueError("a time outside a day")
    if unit == "ns":  # as_py would give a Timestamp of pandas
        nanoseconds = scalar.value % 1000
        if nanoseconds and scalar.value < 0:  # what is cut off leads away from the epoch
            rest = timedelta(microseconds=1)
        kind = pyarrow.time64("us") if is_time else pyarrow.timestamp("us", tz=kind.tz)
        scalar = scalar.cast(kind, safe=False)
    try:
        moment = scalar.as_py()
        moment = moment - rest if rest else moment
    except (OverflowError, ValueError) as error:
        raise ValueError("a date outside the years 1 to 9999") from error
    if not nanoseconds:
        return str(moment.isoformat())
    text = moment.isoformat(timespec="microseconds")
    end = text.index(".") + 7
    return f"{text[:end]}{nanoseconds:03}{text[end:]}"
