"""Numbers as Grafana's units write them, near enough for a picture."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["shown"]

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
