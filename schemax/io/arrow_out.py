"""Values of a row, in the form that JSON has for them, back into a column of any Arrow type."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from schemax.io.storage import optional

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FRACTION = re.compile(r"\.(\d+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def native_array(kind: Any, values: Sequence[Any]) -> Any:
    """An array of that type. Raises pyarrow's ValueError for values of another one."""
    return optional("pyarrow", "a table").array([_native(kind, value) for value in values], kind)


def _native(kind: Any, value: Any) -> Any:
    types = optional("pyarrow", "a table").types
    if value is None:
        return None
    if types.is_struct(kind):
        return {field.name: _native(field.type, value.get(field.name)) for field in kind}
    if types.is_map(kind):
        return [(_native(kind.key_type, k), _native(kind.item_type, v)) for k, v in value]
    if types.is_nested(kind):
        return [_native(kind.value_type, item) for item in value]
    if types.is_decimal(kind):
        return Decimal(value)
    if types.is_floating(kind):
        return float(value)
    if types.is_date(kind):
        return date.fromisoformat(value[:10])
    if types.is_timestamp(kind):
        return _moment(value, _TICKS[kind.unit])
    if types.is_time(kind):
        return _moment(f"1970-01-01T{value}", _TICKS[kind.unit])
    if types.is_duration(kind):
        return int(Decimal(value.removeprefix("PT").removesuffix("S")) * _TICKS[kind.unit])
    if _is_binary(kind):
        return b64decode(value["base64"]) if isinstance(value, dict) else value.encode()
    return value


def _is_binary(kind: Any) -> bool:
    types = optional("pyarrow", "a table").types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _moment(text: str, ticks: int) -> int:
    """Ticks since 1970 of an ISO text, with as many digits of a second as it has."""
    fraction = _FRACTION.search(text)
    moment = datetime.fromisoformat(_FRACTION.sub("", text))
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    whole = (since.days * 86_400 + since.seconds) * ticks
    return whole + int(Decimal(f"0.{fraction[1]}") * ticks) if fraction else whole


def is_native(kind: Any) -> bool:
    """Tells whether all values of a type come back from the form that JSON has for them."""
    types = optional("pyarrow", "a table").types
    if types.is_map(kind):
        return is_native(kind.key_type) and is_native(kind.item_type)
    if types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) and all(is_native(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return is_native(kind.value_type)
    plain = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    timed = (types.is_date, types.is_timestamp, types.is_time, types.is_duration, _is_binary)
    return any(is_one(kind) for is_one in (*plain, *timed, types.is_string, types.is_large_string))
