"""The doors to metrics: live stores, scraped pages, bundles, memory. One protocol, one evaluation.

Nothing is re-exported: each door costs its own imports, and a caller opens only those it needs.
"""

from __future__ import annotations

__all__: list[str] = []
