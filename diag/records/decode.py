"""One line of JSON, however badly it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

__all__ = ["Unusable", "decode_object", "dig", "number_of", "seconds_of"]

_HEX_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})")
# Upper bounds of plausible unix times in seconds, milliseconds and microseconds (year 5138).
_SECONDS_MAX = 1e11
_UNKNOWN = frozenset(("", "-", "null", "None"))


class Unusable(ValueError):
    """A line cannot be a record; the text says why."""


def decode_object(line: bytes) -> dict[str, object]:
    """The object on ``line``; raises ``Unusable``. NaN, nginx's ``\\xNN`` and broken UTF-8 pass."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        value = _decode_leniently(line, error)
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        raise Unusable("a JSON array, not an object: write one object a line (jq -c '.[]')")
    raise Unusable(f"JSON, but not an object ({type(value).__name__})")


def _decode_leniently(line: bytes, first: Exception) -> object:
    text = _HEX_ESCAPE.sub(rb"\\u00\1", line).decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if not text.lstrip().startswith(("{", "[")):
        raise Unusable("not JSON") from first
    raise Unusable(f"not JSON ({first})" if len(str(first)) < 80 else "not JSON") from first


def dig(record: Mapping[str, object], path: str) -> object:
    """The value at a dotted ``path``; a key that itself holds dots is found first. None if absent."""
    if path in record:
        return record[path]
    head, dot, rest = path.partition(".")
    if not dot:
        return None
    inner = record.get(head)
    return dig(inner, rest) if isinstance(inner, dict) else None


def number_of(value: object) -> float | None:
    """A number, also out of a text; None for what says "unknown". Raises ``Unusable`` for junk."""
    if value is None or isinstance(value, bool):
        return None
    try:
        if isinstance(value, int | float | str):
            return float(value)
    except (ValueError, OverflowError):
        if isinstance(value, str) and value.strip() in _UNKNOWN:
            return None
    raise Unusable(f"not a number: {str(value)[:40]!r}")


def seconds_of(value: object) -> float | None:
    """Unix seconds from a number (seconds, ms, µs or ns) or an ISO 8601 text; a text without a zone
    is taken as UTC. None when absent; raises ``Unusable`` when it is no time."""
    try:
        number = number_of(value)
    except Unusable:
        return _iso_seconds(str(value))
    if number is None:
        return None
    if not 0 < number < 1e20:
        raise Unusable(f"no unix time: {number}")
    while number > _SECONDS_MAX:
        number /= 1000.0
    return number


def _iso_seconds(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise Unusable(f"no time: {text[:40]!r}") from None
