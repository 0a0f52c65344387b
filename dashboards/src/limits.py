"""Threshold lines: the alerts' own numbers, never a second copy of them."""

from __future__ import annotations

from dashboards.src.model import Limit
from diag.assets.rules.catalogue import alert
from diag.assets.rules.model import Threshold

__all__ = ["line"]


def line(name: str, threshold: Threshold, scale: float = 1.0) -> Limit:
    """The line at which the alert ``name`` compares with ``threshold``; ``scale`` turns the alert's unit
    into the panel's.

    Raises ``UsageError`` for an alert that is not there, ``ValueError`` for a number it does not use.
    """
    entry = alert(name)
    if threshold not in entry.thresholds:
        raise ValueError(f"{name} does not compare with {threshold.value:g} ({threshold.reason})")
    return Limit(threshold.value * scale, name, entry.severity)
