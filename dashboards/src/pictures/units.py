"""Numbers as Grafana's units write them, near enough for a picture."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["shown", "ticks"]

_THOUSANDS = ("", "K", "M", "G", "T")
_BYTES = (" B", " KiB", " MiB", " GiB", " TiB")
_SUFFIXES = {
    "celsius": " °C", "watt": " W", "reqps": " req/s", "cps": " c/s", "count:tok/s": " tok/s", "Bps": "B/s",
}  # fmt: skip


def shown(value: float, unit: str) -> str:
    """``value`` in ``unit``: ``0.25`` as ``25 %``, ``0.004`` seconds as ``4 ms``."""
    special: dict[str, Callable[[float], str]] = {
        "s": _seconds,
        "percentunit": lambda number: f"{100 * number:.3g} %",
        "bytes": lambda number: _scaled(number, 1024.0, _BYTES),
        "none": lambda number: f"{number:g}",
    }
    if unit in special:
        return special[unit](value)
    return _scaled(value, 1000.0, _THOUSANDS) + _SUFFIXES.get(unit, "")


_STEPS = (1.0, 2.0, 2.5, 5.0)
_CLOCK = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 43_200.0, 86_400.0)


def ticks(low: float, high: float, unit: str) -> list[float]:
    """Three to five round numbers of ``unit`` between ``low`` and ``high``."""
    span = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(span))
    step = next(one * power for one in (*_STEPS, 10.0) if one * power >= span)
    if unit == "s" and span > 30:
        step = next((one for one in _CLOCK if one >= span), 86_400.0 * math.ceil(span / 86_400.0))
    elif unit == "bytes":
        step = 2.0 ** math.ceil(math.log2(span))
    elif unit == "percentunit" and 0.15 < span < 0.3:
        step = 0.25
    first = math.ceil(low / step)
    return [step * place for place in range(first, math.floor(high / step) + 1)]


def _scaled(value: float, base: float, names: tuple[str, ...]) -> str:
    place = 0
    while abs(value) >= base and place < len(names) - 1:
        value, place = value / base, place + 1
    return f"{value:.3g}{names[place]}"


def _seconds(value: float) -> str:
    size = abs(value)
    if size and size < 1:
        return f"{1000 * value:.3g} ms"
    for limit, factor, name in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if size < limit:
            return f"{value / factor:.3g} {name}"
    return f"{value / 86_400:.3g} d"
