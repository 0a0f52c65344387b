"""Numbers as an operator would say them."""

from __future__ import annotations

import math

from diag.model import Finding

__all__ = ["change", "quantity"]

_BYTES = ("B", "kB", "MB", "GB", "TB")


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit: ``1.5 s``, ``92k tokens``, ``99.9 %``; unknown is a question mark."""
    if value is None or not math.isfinite(value):
        return "?"
    match unit:
        case "seconds":
            return _seconds(value)
        case "ratio" | "floors":
            return f"{100 * value:.3g} %" if abs(value) < 0.1 else f"{100 * value:.0f} %"
        case "bytes":
            return _scaled(value, 1000.0, _BYTES, " ")
        case "hertz":
            return f"{value / 1e6:,.0f} MHz"
        case "celsius":
            return f"{value:.0f} °C"
        case "watts":
            return f"{value:,.0f} W"
        case "per second":
            return f"{_count(value)}/s"
        case "tokens per second":
            return f"{_count(value)} tokens/s"
        case "":
            return _count(value)
        case _:
            return f"{_count(value)} {unit}"


def _seconds(value: float) -> str:
    size = abs(value)
    if size < 0.0005:
        return "0 s"
    if size < 1:
        return f"{1000 * value:.0f} ms" if size >= 0.01 else f"{1000 * value:.1f} ms"
    if size < 120:
        return f"{value:.1f} s" if size < 20 else f"{value:.0f} s"
    return f"{value / 60:.1f} min"


def _count(value: float) -> str:
    size = abs(value)
    if size >= 10_000:
        return f"{_scaled(value, 1000.0, ('', 'k', 'M', 'G', 'T'), '')}"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _scaled(value: float, base: float, units: tuple[str, ...], gap: str) -> str:
    power = 0
    while abs(value) >= base and power < len(units) - 1:
        value /= base
        power += 1
    return f"{value:.3g}{gap}{units[power]}"


def change(finding: Finding) -> str:
    """``went from 1.5 s to 4.2 s`` or ``stayed at 12 (now 13)``."""
    before, during = quantity(finding.before, finding.unit), quantity(finding.during, finding.unit)
    if before == during:
        return f"stayed at {during}"
    if abs(finding.effect) < 1:
        return f"stayed about level ({before} → {during})"
    return f"went from {before} to {during}"
