"""A finding in words."""

from __future__ import annotations

from diag import quantities
from diag.model import Finding
from diag.quantities import quantity

__all__ = ["change"]


def change(finding: Finding) -> str:
    """``went from 1.5 s to 4.2 s``, ``stayed about level (12 → 13)``, ``stayed at 0``."""
    before, during = quantity(finding.before, finding.unit), quantity(finding.during, finding.unit)
    if before == during:
        return f"stayed at {during}"
    if not finding.moved:
        return f"stayed about level ({quantities.change(finding.before, finding.during, finding.unit)})"
    return f"went from {before} to {during}"
