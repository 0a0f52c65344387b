"""Numbers and times as a tired engineer reads them: three digits, the right unit, no raw tail."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

__all__ = [
    "change",
    "clock",
    "day",
    "offset",
    "percent",
    "plain",
    "quantity",
    "rounded",
    "span",
    "timestamp",
]

_MINUS = "\N{MINUS SIGN}"
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """``text`` on one line without control characters: labels come from strangers' servers."""
    return _UNSAFE.sub("", text.replace("\n", " ").replace("\t", " ")).strip()


def rounded(value: float | None) -> float | int | None:
    """Six significant digits but never coarser than 1; None for NaN and infinity.

    Every output rounds like this first, so that a saved verdict reads like a fresh one."""
    if value is None or not math.isfinite(value):
        return None
    if value == 0:
        return 0
    digits = max(0, 5 - math.floor(math.log10(abs(value))))
    result = round(float(value), digits)
    return int(result) if result.is_integer() else result


def quantity(value: float | None, unit: str) -> str:
    """``value`` with its unit: ``quantity(92000, "tokens")`` is ``"92k tokens"``."""
    number = rounded(value)
    if number is None:
        return "unknown"
    sign = _MINUS if number < 0 else ""
    size = abs(number)
    if unit == "ratio":
        return sign + percent(size)
    if unit == "seconds":
        return sign + span(size)
    if unit == "unix seconds":
        return f"{day(number)} {clock(number)} UTC"
    return sign + _with_unit(size, unit)


def _with_unit(size: float, unit: str) -> str:
    if unit == "bytes":
        return _scaled(size, (" B", " kB", " MB", " GB", " TB"))
    if unit == "hertz":
        return f"{size / 1e6:.0f} MHz" if size >= 1e6 else f"{_short(size)} Hz"
    if unit == "celsius":
        return f"{_short(size)} °C"
    if unit == "watts":
        return f"{_short(size)} W"
    amount = _scaled(size, ("", "k", "M", "G", "T"))
    if unit == "per second":
        return f"{amount}/s"
    if unit.endswith(" per second"):
        return f"{amount} {unit.removesuffix(' per second')}/s"
    return f"{amount} {unit}" if unit not in ("", "1", "code") else amount


def change(before: float | None, during: float | None, unit: str) -> str:
    """``before → during`` with the unit said once where both sides share it."""
    left, right = quantity(before, unit), quantity(during, unit)
    number, _, name = left.partition(" ")
    if name and right.partition(" ")[2] == name:
        left = number
    return f"{left} → {right}"


def percent(share: float) -> str:
    """A share of 1 as per cent; 100 % only when it is all."""
    if 0 < share < 0.001:
        return "<0.1 %"
    value = share * 100
    if 99 <= value < 100:
        return f"{min(value, 99.9):.1f} %"
    return f"{value:.1f} %".replace(".0 %", " %") if value < 10 else f"{value:.0f} %"


def span(seconds: float) -> str:
    """A length of time."""
    if seconds == 0:
        return "0 s"
    if seconds < 1e-4:
        return "<0.1 ms"
    if seconds < 1:
        return f"{_short(seconds * 1000)} ms"
    if seconds < 600:
        return f"{_short(seconds)} s"
    return f"{_short(seconds / 60)} min" if seconds < 7200 else f"{_short(seconds / 3600)} h"


def offset(seconds: float) -> str:
    """A signed distance between two times, whole seconds or more."""
    size = abs(round(seconds))
    sign = _MINUS if seconds < 0 and size else "+"
    if size < 120:
        return f"{sign}{size} s"
    if size < 7200:
        return f"{sign}{size // 60}:{size % 60:02d} min"
    return f"{sign}{size // 3600}:{size % 3600 // 60:02d} h"


def clock(time: float) -> str:
    """Time of day, UTC."""
    return _utc(time).strftime("%H:%M:%S")


def day(time: float) -> str:
    """Date, UTC."""
    return _utc(time).strftime("%Y-%m-%d")


def timestamp(time: float | None) -> str | None:
    """RFC 3339 in UTC with ``Z``, milliseconds only where there are some."""
    if time is None or not math.isfinite(time):
        return None
    moment = datetime.fromtimestamp(round(time, 3), UTC)
    text = moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def _utc(time: float) -> datetime:
    return datetime.fromtimestamp(math.floor(round(time, 3)), UTC)


def _short(size: float) -> str:
    """Three significant digits at most, whole from 100 on."""
    if size >= 100:
        return f"{size:.0f}"
    if size == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(size)))
    text = f"{size:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(size: float, names: tuple[str, ...]) -> str:
    for name in names[:-1]:
        if size < 999.5:
            return f"{_short(size)}{name}"
        size /= 1000
    return f"{_short(size)}{names[-1]}"
