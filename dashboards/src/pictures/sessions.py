"""What ``diag-exporter sessions`` would have shown of an incident: its own table, fed with the incident's
request records at the moments they ended, read every fifteen seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from zlib import crc32

import numpy as np

from diag.signals.frame import RawSeries
from diag.simulate.parts import Bundle, Record
from diag_exporter.families import Histogram
from diag_exporter.sessions.events import Event
from diag_exporter.sessions.series import FAMILIES, session_rows
from diag_exporter.sessions.table import SessionTable

__all__ = ["session_series"]

_STEP_SECONDS = 15.0
_TARGET = {"job": "llmdiag", "instance": "gateway-0:9877"}
_LABELS = {family.name: family.labels for family in FAMILIES}
_Key = tuple[tuple[str, str], ...]


def session_series(bundle: Bundle) -> list[RawSeries]:
    """The session feeds' series over the bundle's window; none where its requests are no records of ours (a
    gateway's own log)."""
    records = [record for record in bundle.requests if "ts" in record and record.get("status")]
    if not records:
        return []
    model, longest = _model(bundle), _longest(bundle)
    events = sorted(
        (record["ts"] + (record.get("duration_seconds") or 0.0), _event(record, model)) for record in records
    )
    now = bundle.window.start
    table = SessionTable(clock=lambda: now)
    held: defaultdict[_Key, list[tuple[float, float]]] = defaultdict(list)
    place = 0
    while now <= bundle.window.end:
        begin = place
        while place < len(events) and events[place][0] <= now:
            place += 1
        table.add_all([event for _, event in events[begin:place]])
        for key, value in _rows(table, longest):
            held[key].append((now, value))
        now += _STEP_SECONDS
    return [_raw(key, samples) for key, samples in held.items()]


def _event(record: Record, model: str) -> Event:
    session = record.get("session")
    return Event(
        ts=record["ts"],
        model=record.get("model") or model,
        tenant=record.get("tenant") or "",
        session=None if session is None else crc32(session.encode()),
        session_source="none" if session is None else "x-session-id",
        status=record["status"],
        prompt_tokens=record.get("prompt_tokens"),
        cached_tokens=record.get("cached_tokens"),
        output_tokens=record.get("output_tokens"),
        ttft_seconds=record.get("ttft_seconds"),
        queue_seconds=record.get("queue_seconds"),
        duration_seconds=record.get("duration_seconds"),
    )


def _model(bundle: Bundle) -> str:
    named = (one.labels.get("model_name", "") for one in bundle.series())
    return next(filter(None, named), "unknown")


def _longest(bundle: Bundle) -> int:
    told = [one.values[-1] for one in bundle.series("llmdiag_model_max_len_tokens")]
    return int(told[0]) if told else 32_768


def _rows(table: SessionTable, longest: int) -> Iterator[tuple[_Key, float]]:
    for name, rows in session_rows(table, lambda _: longest).items():
        for row in rows:
            labels = dict(zip(_LABELS[name], row.labels, strict=True)) | _TARGET
            if isinstance(row.value, Histogram):
                yield from _histogram(name, labels, row.value)
            else:
                yield _key(name, labels), row.value


def _histogram(name: str, labels: dict[str, str], value: Histogram) -> Iterator[tuple[_Key, float]]:
    below = np.cumsum(value.counts)
    for bound, count in zip((*map(str, value.bounds), "+Inf"), below, strict=True):
        yield _key(f"{name}_bucket", labels | {"le": bound}), float(count)
    yield _key(f"{name}_sum", labels), value.total
    yield _key(f"{name}_count", labels), float(below[-1])


def _key(name: str, labels: dict[str, str]) -> _Key:
    return tuple(sorted(({"__name__": name} | labels).items()))


def _raw(key: _Key, samples: list[tuple[float, float]]) -> RawSeries:
    times, values = zip(*samples, strict=True)
    return RawSeries(dict(key), np.array(times), np.array(values))
