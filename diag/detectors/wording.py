"""A finding in words."""

from __future__ import annotations

import math

from diag import quantities
from diag.model import Finding
from diag.quantities import quantity
from diag.signals import SIGNALS

__all__ = ["change"]


def change(finding: Finding) -> str:
    """``went from 1.5 s to 4.2 s``, ``stayed about level (12 → 13)``, ``stayed at 0``.

    What doubled without leaving its usual wander is told as that: not level, and no evidence."""
    before, during = quantity(finding.before, finding.unit), quantity(finding.during, finding.unit)
    if before == during:
        return f"stayed at {during}"
    if finding.moved:
        return f"went from {before} to {during}"
    both = quantities.change(finding.before, finding.during, finding.unit)
    return f"{both}, within its usual wander" if _far(finding) else f"stayed about level ({both})"


def _far(finding: Finding) -> bool:
    """Whether the bare numbers differ by more than the signal's floor."""
    signal = SIGNALS[finding.signal]
    if not signal.relative:
        return abs(finding.during - finding.before) >= signal.floor
    if finding.before <= 0 or finding.during <= 0:
        return True
    return abs(math.log(finding.during / finding.before)) >= signal.floor
