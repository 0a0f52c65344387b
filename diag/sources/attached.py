"""Read what lies beside the metrics: request records, spans, logs, events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from diag.model import Event, Fact, Labels, Series, Window
from diag.signals.frame import Grid
from diag.sources.naming import host_of
from diag.sources.protocol import Attachments, Question

if TYPE_CHECKING:
    import pandas as pd

    from diag.records import AccessInterval

__all__ = [
    "Logs",
    "all_attachments",
    "component_of",
    "on_grid",
    "read_logs",
    "read_marked_events",
    "read_records",
]

_SCRAPES_STOP_SECONDS = 30.0
_SCRAPES_BEFORE = 5


@dataclass(frozen=True, slots=True)
class Logs:
    """What all logs told, under the instances' own names."""

    series: tuple[Series, ...] = ()
    facts: tuple[Fact, ...] = ()
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()


def all_attachments(parts: Sequence[Attachments], question: Question) -> Attachments:
    """What came with the sources and what was named in the question, each file once."""
    return Attachments(
        requests=tuple(
            dict.fromkeys([*question.requests, *(path for one in parts for path in one.requests)])
        ),
        traces=tuple(dict.fromkeys(path for one in parts for path in one.traces)),
        logs=tuple(dict.fromkeys([*question.logs, *(path for one in parts for path in one.logs)])),
        events=tuple(dict.fromkeys([*question.events, *(path for one in parts for path in one.events)])),
    )


def read_records(
    attached: Attachments, question: Question, window: Window | None
) -> tuple[pd.DataFrame | None, tuple[str, ...]]:
    """Request records joined with spans, or spans alone; None when there is neither.

    The question's preset and map hold for its own files; a bundle's are in the agreed format."""
    if not attached.requests and not attached.traces:
        return None, ()
    from diag.records import BadLines, join_spans, read_requests, read_spans

    notes: list[str] = []
    frames: list[pd.DataFrame] = []
    named = [path for path in attached.requests if path in question.requests]
    carried = [path for path in attached.requests if path not in question.requests]
    for paths, preset, mapping in (
        (named, question.requests_preset, question.requests_map or None),
        (carried, None, None),
    ):
        if paths:
            read = read_requests(paths, preset=preset, mapping=mapping, window=window)
            notes += read.notes
            frames.append(read.frame)
    requests = _stacked(frames)
    if attached.traces:
        bad = BadLines()
        spans = read_spans(attached.traces, bad=bad)
        if bad.total:
            notes.append(f"{bad.total} unreadable span lines left out ({', '.join(map(str, bad.kept[:2]))})")
        if requests is None or requests.empty:
            requests = spans if window is None else spans[spans["ts"].between(window.start, window.end)]
        else:
            requests = join_spans(requests, spans)
    if requests is None or requests.empty:
        return None, (*notes, "the request records hold nothing in this window")
    return requests.reset_index(drop=True), tuple(notes)


def _stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame | None:
    filled = [frame for frame in frames if not frame.empty] or list(frames[:1])
    if len(filled) < 2:
        return filled[0] if filled else None
    import pandas as pd

    return pd.concat(filled, ignore_index=True).sort_values("ts", kind="stable", ignore_index=True)


def read_marked_events(attached: Attachments) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """The events that people or tools marked, and a note on lines that could not be used."""
    if not attached.events:
        return (), ()
    from diag.records import BadLines, read_events

    bad = BadLines()
    events = read_events(attached.events, bad=bad)
    return events, (f"{bad.total} unreadable event lines left out",) if bad.total else ()


def read_logs(paths: Sequence[Path], window: Window, instances: Sequence[str]) -> Logs:
    """Read every log. A component's name becomes the scraped instance's where it is clear which."""
    if not paths:
        return Logs()
    from diag.records import read_log

    series: list[Series] = []
    facts: list[Fact] = []
    events: list[Event] = []
    notes: list[str] = []
    for path in paths:
        read = read_log(path, window=window, component=component_of(path))
        labels: list[Labels] = [one.labels for one in read.series] + [one.labels for one in read.facts]
        who = {held.get("instance", "") for held in labels} | {part.instance for part in read.scrapes}
        names = {name: _instance(name, instances, alone=len(paths) == 1 and len(who) == 1) for name in who}
        series += [
            Series(s.signal, _named(s.labels, names), s.times, s.values, s.producer) for s in read.series
        ]
        facts += [
            Fact(f.name, f.value, _named(f.labels, names), f.source, f.since, f.until) for f in read.facts
        ]
        events += [
            Event(e.time, e.kind, names.get(e.target, e.target), e.text, e.marked) for e in read.events
        ]
        events += _scrapes_stopped(read.scrapes, names)
        notes += read.notes
    return Logs(tuple(series), tuple(facts), tuple(events), tuple(notes))


def component_of(path: Path) -> str:
    """``logs/<component>.log[.gz]``."""
    return re.sub(r"\.log(\.gz)?$|\.gz$", "", path.name)


def on_grid(one: Series, grid: Grid) -> Series:
    """A log's series on the case's grid: each line holds for one and a half of its usual distances."""
    times = grid.times
    hold = 1.5 * float(np.median(np.diff(one.times))) if one.times.size > 1 else grid.window
    where = np.searchsorted(one.times, times, side="right") - 1
    known = where >= 0
    values = np.full(times.size, np.nan)
    held = known & (times - one.times[np.maximum(where, 0)] <= hold)
    values[held] = one.values[where[held]]
    return Series(one.signal, one.labels, times, values, one.producer)


def _instance(component: str, instances: Sequence[str], *, alone: bool) -> str:
    same = [who for who in instances if who == component or host_of(who) == component]
    if len(same) == 1:
        return same[0]
    return instances[0] if alone and len(instances) == 1 and not same else component


def _named(labels: Labels, names: dict[str, str]) -> dict[str, str]:
    instance = labels.get("instance", "")
    return {**labels, "instance": names.get(instance, instance)}


def _scrapes_stopped(parts: Sequence[AccessInterval], names: dict[str, str]) -> list[Event]:
    """One event where a log that showed scrapes goes on and shows no more of them."""
    found: list[Event] = []
    for who in sorted({part.instance for part in parts}):
        own = sorted((part for part in parts if part.instance == who), key=lambda part: part.start)
        scraped = [part for part in own if part.scrapes]
        if sum(part.scrapes for part in scraped) < _SCRAPES_BEFORE:
            continue
        last = scraped[-1].end
        after = own[-1].end - last
        answered = sum(part.requests for part in own if part.start >= last)
        if after >= _SCRAPES_STOP_SECONDS and answered:
            text = f"no GET /metrics in the log for {after:.0f} s, while it answered {answered} requests"
            found.append(Event(last, "scrapes_stopped", names.get(who, who), text, marked=False))
    return found
