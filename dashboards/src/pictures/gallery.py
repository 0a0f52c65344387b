"""The page about the dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SHOWN", "page"]

SHOWN = {
    "incident": "context_growth",
    "sessions": "context_growth",
    "engine": "load_burst",
    "cache": "kv_cache_exhaustion",
    "gpu": "thermal_throttle",
    "fabric": "fabric_flap",
    "tenants": "tenant_dominance",
}
"""Which incident each board is shown with."""


def page(boards: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/dashboards.md."""
    return "# Dashboards\n"
