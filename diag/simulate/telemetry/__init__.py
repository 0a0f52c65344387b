"""A finished run as exporters, logs and clients would have shown it.

    show(run) -> Bundle

Names, labels, bounds and quirks are those of the real exporters; nothing here knows which cause a
plan stands for, but for the label that is copied.
"""

from __future__ import annotations

from diag.simulate.telemetry.showing import show

__all__ = ["show"]
