"""The page: snapshots as Prometheus' text format 0.0.4 or as OpenMetrics 1.0.

Written straight from rows: building a client library's metric objects for every scrape costs ten
times as much and would have to be loaded at start-up. A test holds the text against
``prometheus_client``'s own writer and parsers.
"""

from __future__ import annotations

import gzip
import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from diag_exporter.families import Family, Histogram, Row
from diag_exporter.snapshot import CollectorHealth, Snapshot

__all__ = ["OPEN_METRICS", "OWN_FAMILIES", "TEXT", "compressed", "own_rows", "render"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_COLLECTOR = ("collector",)
OWN_FAMILIES: tuple[Family, ...] = (
    Family(
        "llmdiag_exporter_build_info",
        "info",
        "Version of the exporter and of the Python it runs on.",
        ("version", "python_version"),
        source="the package",
    ),
    Family(
        "llmdiag_up",
        "gauge",
        "1 while every sampling thread makes progress, 0 while one of them hangs or has ended.",
        source="the exporter",
    ),
    Family(
        "llmdiag_snapshot_age_seconds",
        "gauge",
        "Seconds since the last pass over the collectors of this part ended; scrapes read what it left.",
        ("part",),
        "the first pass has not ended",
        "the exporter",
    ),
    Family(
        "llmdiag_collector_success",
        "gauge",
        "1 when the last run of the collector succeeded (having nothing to say is a success), else 0.",
        _COLLECTOR,
        "the collector is switched off",
        "the exporter",
    ),
    Family(
        "llmdiag_collector_duration_seconds",
        "gauge",
        "How long the last run of the collector took.",
        _COLLECTOR,
        "the collector is switched off",
        "the exporter",
    ),
    Family(
        "llmdiag_collector_last_success_timestamp_seconds",
        "gauge",
        "Unix time of the collector's last success.",
        _COLLECTOR,
        "it never succeeded",
        "the exporter",
    ),
    Family(
        "llmdiag_collector_failures_total",
        "counter",
        "Runs of the collector that failed.",
        _COLLECTOR,
        "the collector is switched off",
        "the exporter",
    ),
    Family(
        "llmdiag_collector_stale",
        "gauge",
        "1 while the collector's series are left out for their age.",
        _COLLECTOR,
        "the collector is switched off",
        "the exporter",
    ),
    Family(
        "llmdiag_collector_wedged",
        "gauge",
        "1 while a run of the collector does not come back.",
        _COLLECTOR,
        "the collector is switched off",
        "the exporter",
    ),
    Family(
        "llmdiag_collector_dropped_rows_total",
        "counter",
        "Rows left out because they could not be served (doubled series, counters below zero, not a number).",
        _COLLECTOR,
        "the collector is switched off",
        "the exporter",
    ),
)


def render(
    families: Iterable[Family], rows: Mapping[str, Sequence[Row]], *, open_metrics: bool = False
) -> str:
    """The page of ``families``, those without rows left out."""
    lines: list[str] = []
    for family in families:
        some = rows.get(family.name)
        if some:
            lines.extend(_heading(family, open_metrics))
            _write(lines, family, some)
    if open_metrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n" if lines else ""


def own_rows(snapshots: Mapping[str, Snapshot], version: str) -> dict[str, list[Row]]:
    """The exporter about itself; ``snapshots`` by part."""
    health = {name: one for snapshot in snapshots.values() for name, one in snapshot.health.items()}
    ages = {part: one.age for part, one in snapshots.items() if math.isfinite(one.age)}
    up = len(ages) == len(snapshots) and not any(one.wedged for one in health.values())

    def each(value: Mapping[str, float]) -> list[Row]:
        return [Row((name,), number) for name, number in value.items()]

    def of(field: str) -> list[Row]:
        return each({name: float(getattr(one, field)) for name, one in health.items()})

    prefix = "llmdiag_collector_"
    return {
        "llmdiag_exporter_build_info": [Row((version, platform.python_version()), 1.0)],
        "llmdiag_up": [Row((), float(up))],
        "llmdiag_snapshot_age_seconds": each(ages),
        f"{prefix}success": of("success"),
        f"{prefix}duration_seconds": of("seconds"),
        f"{prefix}last_success_timestamp_seconds": each(_successes(health)),
        f"{prefix}failures_total": of("failures"),
        f"{prefix}stale": of("stale"),
        f"{prefix}wedged": of("wedged"),
        f"{prefix}dropped_rows_total": of("dropped"),
    }


def compressed(page: bytes) -> bytes:
    """Gzip at level 1: 20 % larger than level 9, at a twentieth of its time (a scrape every few
    seconds over a local network wants the latter)."""
    return gzip.compress(page, compresslevel=1, mtime=0)


def _successes(health: Mapping[str, CollectorHealth]) -> dict[str, float]:
    return {name: one.last_success for name, one in health.items() if one.last_success is not None}


def _heading(family: Family, open_metrics: bool) -> Iterator[str]:
    name, kind = family.name, str(family.kind)
    if open_metrics:
        # OpenMetrics names the family, of which the suffix is no part.
        suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
        name = name.removesuffix(suffix)
    elif kind == "info":
        kind = "gauge"
    text = _escaped(family.help, quotes=open_metrics)
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _write(lines: list[str], family: Family, rows: Sequence[Row]) -> None:
    name, labels = family.name, family.labels
    for row in rows:
        inner = _inner(labels, row.labels) if labels else ""
        value = row.value
        if isinstance(value, Histogram):
            lines.extend(_buckets(name, inner, value))
        elif inner:
            lines.append(f"{name}{{{inner}}} {float(value)!r}")
        else:
            lines.append(f"{name} {float(value)!r}")


@lru_cache(maxsize=16384)
def _inner(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """What stands between the braces; the same for most series from one scrape to the next."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))


def _buckets(name: str, inner: str, value: Histogram) -> Iterator[str]:
    before = f"{inner}," if inner else ""
    braces = f"{{{inner}}}" if inner else ""
    seen = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        seen += count
        limit = "+Inf" if bound == math.inf else repr(float(bound))
        yield f'{name}_bucket{{{before}le="{limit}"}} {seen}.0'
    yield f"{name}_count{braces} {seen}.0"
    yield f"{name}_sum{braces} {float(value.total)!r}"


def _escaped(text: str, quotes: bool = True) -> str:
    if "\\" in text or "\n" in text or '"' in text:
        text = text.replace("\\", r"\\").replace("\n", r"\n")
        return text.replace('"', r"\"") if quotes else text
    return text
