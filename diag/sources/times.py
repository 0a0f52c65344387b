"""Say times to people."""

from __future__ import annotations

from datetime import UTC, datetime

from diag.model import Window

__all__ = ["rfc3339", "spoken"]


def rfc3339(time: float) -> str:
    """``2026-11-29T22:18:51Z``, whole seconds, UTC."""
    return datetime.fromtimestamp(round(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def spoken(window: Window) -> str:
    """``… to …``, for a sentence."""
    return f"{rfc3339(window.start)} to {rfc3339(window.end)}"
