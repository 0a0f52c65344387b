"""Arrays in, small records out. No domain words here; the only place that imports scipy."""

from __future__ import annotations

__all__: list[str] = []
