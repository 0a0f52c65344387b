"""CPU time and memory of the things an engineer waits for; ``make bench`` prints them."""

from __future__ import annotations

__all__: list[str] = []
