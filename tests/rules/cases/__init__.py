"""The rows from which the promtool tests are written: one module for each file of alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.rules.cases import cache, engine, fabric, gpu, host, llmdiag, meta, slo
from tests.rules.cases.case import Case

__all__ = ["FILES"]

FILES: Mapping[str, Sequence[Case]] = {
    "cache": cache.CASES,
    "engine": engine.CASES,
    "fabric": fabric.CASES,
    "gpu": gpu.CASES,
    "host": host.CASES,
    "host_days": host.LONG,
    "llmdiag": llmdiag.CASES,
    "meta": meta.CASES,
    "slo": slo.CASES,
    "slo_days": slo.LONG,
}
"""By the name of the test file; what stands before ``_days`` is the file below rules/alerts."""
