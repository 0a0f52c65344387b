"""``diag serve``: an alert comes in, its diagnosis is there when somebody looks.

    webhook  ─> store (SQLite) ─> worker: one triage a question ─> store ─> pages, API, metrics, message

Nothing is lost: what was accepted is on disk before the answer goes out.
"""

from __future__ import annotations

__all__: list[str] = []
