"""Series and records in, findings out: what moved, by how much, since when, and what is excluded."""

from __future__ import annotations

__all__: list[str] = []
