"""``diag watch``: the incident while it develops, in a terminal."""

from __future__ import annotations

__all__: list[str] = []
