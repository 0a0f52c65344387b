"""Reads an engine's or a kernel's log: settings, trouble, and the numbers it prints now and then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from diag.model import Event, Fact, Series, Window
from diag.records.lines import Lines
from diag.records.log_clock import Clock, find_offset
from diag.records.log_engine import EngineSample, engine_sample, prompt_signal
from diag.records.log_lines import ACCESS, Message, header_component, messages
from diag.records.log_startup import Startups
from diag.records.log_trouble import merged, trouble

__all__ = ["AccessInterval", "LogRead", "read_log"]

_LINE_CHARS_MAX = 1_000_000
_INTERVAL_SECONDS_MIN = 5.0
_EVENTS_BEFORE_SECONDS = 3600.0
_INFERENCE_PREFIXES = (
    "/v1/",
    "/generate",
    "/inference",
    "/invocations",
    "/score",
    "/rerank",
    "/pooling",
    "/embed",
)
_SHUTDOWN = ("shutdown triggered", "Shutting down")


@dataclass(frozen=True, slots=True)
class AccessInterval:
    """HTTP answers between two stamped lines (access lines carry no time of their own).

    ``requests`` counts POSTs to inference routes, ``errors`` those with a 5xx, ``scrapes`` GETs of
    ``/metrics``.
    """

    instance: str
    start: float
    end: float
    requests: int
    errors: int
    scrapes: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """What a log told. Series keep the log's own times (about every 10 s, silent when idle), labels
    ``instance`` (and ``engine`` when one server runs several); facts hold since their line; events
    are unmarked and reach back an hour before the window. ``scrapes`` is empty when the log has no
    access lines at all, which is not the same as no scrape."""

    facts: tuple[Fact, ...]
    events: tuple[Event, ...]
    series: tuple[Series, ...]
    notes: tuple[str, ...]
    scrapes: tuple[AccessInterval, ...] = ()


@dataclass(slots=True)
class _Access:
    """Counts access lines between boundaries at least ``_INTERVAL_SECONDS_MIN`` apart."""

    instance: str
    opened: float | None = None
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    intervals: list[AccessInterval] = field(default_factory=list)
    seen: bool = False

    def count(self, text: str) -> None:
        for method, path, status in ACCESS.findall(text):
            self.seen = True
            if method == "GET" and path.partition("?")[0] == "/metrics":
                self.counts[2] += 1
            elif method == "POST" and path.startswith(_INFERENCE_PREFIXES):
                self.counts[0] += 1
                self.counts[1] += status.startswith("5")

    def boundary(self, time: float) -> None:
        if self.opened is not None:
            if 0 <= time - self.opened < _INTERVAL_SECONDS_MIN:
                return
            if time > self.opened:
                self.intervals.append(AccessInterval(self.instance, self.opened, time, *self.counts))
        self.opened, self.counts = time, [0, 0, 0]


@dataclass(slots=True)
class _Component:
    """What one component's lines have told so far."""

    name: str
    startups: Startups = field(default_factory=Startups)
    points: dict[tuple[str, str, str], dict[float, float]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    access: _Access = field(init=False)
    latest: float | None = None
    last_stats: dict[str, float] = field(default_factory=dict)
    stopping: bool = False
    undated: int = 0
    unsure_prompt: bool = False

    def __post_init__(self) -> None:
        self.access = _Access(self.name)

    def take(self, message: Message) -> None:
        text = message.text
        if message.stamp is not None:
            self.latest = message.stamp.time
            self.access.boundary(self.latest)
        if "HTTP/" in text:
            self.access.count(text)
        starts = len(self.startups.begun)
        self.startups.feed(message.stamp.time if message.stamp else self.latest, text)
        if any(word in text for word in _SHUTDOWN):
            self.stopping = True
        elif len(self.startups.begun) > starts:
            self.stopping = False
        sample = engine_sample(text, message.ranks)
        if sample is not None:
            self._add_sample(sample, message.stamp.time if message.stamp else None)
        self._add_trouble(text)

    def _add_trouble(self, text: str) -> None:
        event = trouble(self.latest if self.latest is not None else 0.0, text, self.name)
        if event is None or (self.stopping and event.kind == "engine_error"):
            return
        if self.latest is None:
            self.undated += 1
        else:
            self.events.append(event)

    def _add_sample(self, sample: EngineSample, time: float | None) -> None:
        if time is None:
            self.undated += 1
            return
        values = dict(sample.values)
        if sample.prompt_rate is not None:
            signal, sure = prompt_signal(sample, self.startups.version)
            values[signal] = sample.prompt_rate
            self.unsure_prompt |= not sure
        before = self.last_stats.get(sample.engine)
        if sample.preemptions is not None and before is not None and time > before:
            values["preemptions_per_second"] = sample.preemptions / (time - before)
        if "running_requests" in values:
            self.last_stats[sample.engine] = time
        for signal, value in values.items():
            held = self.points.setdefault((signal, sample.engine, sample.producer), {})
            # Several lines of one second: the fullest pool counts, of the rest the latest.
            held[time] = max(value, held.get(time, 0.0)) if signal == "kv_cache_usage_ratio" else value


def read_log(path: Path | str, *, window: Window, component: str) -> LogRead:
    """Read one log (plain or gzipped) of vLLM, SGLang or a kernel.

    ``component`` labels what is found (``instance``) unless the log itself parts several: headings
    (``# vllm-0``), or two or more container names in front of the lines. Times without year and zone
    are completed from ``window`` (see ``log_clock``); the note says so when they are not UTC.
    Nothing in a log raises; ``RecordsError`` only when the file cannot be opened.
    """
    path = Path(path)
    lines = Lines(path)
    clock = Clock(window)
    naive: list[float] = []
    names: set[str] = set()
    for text in _texts(lines):
        for message in messages(text, clock):
            if message.stamp is not None and not message.stamp.zoned:
                naive.append(message.stamp.time)
            if message.component is not None and message.stamp is not None and len(names) < 2:
                names.add(message.component)
    offset, note = find_offset(naive, window)
    notes = [f"{path}: {note}"] if note else []
    components = _components(path, Clock(window, offset), component, several=len(names) > 1)
    return _finish(path, components, window, notes + lines.notes)


def _texts(lines: Lines) -> Iterator[str]:
    for _, line in lines:
        if line is not None:
            yield line[:_LINE_CHARS_MAX].decode("utf-8", "replace").rstrip()


def _components(path: Path, clock: Clock, name: str, *, several: bool) -> list[_Component]:
    found: dict[str, _Component] = {}
    for text in _texts(Lines(path)):
        heading = header_component(text)
        if heading is not None:
            name = heading
            continue
        for message in messages(text, clock):
            key = message.component if several and message.component else name
            if key not in found:
                found[key] = _Component(key)
            found[key].take(message)
    return list(found.values())


def _finish(path: Path, components: list[_Component], window: Window, notes: list[str]) -> LogRead:
    facts: list[Fact] = []
    events: list[Event] = []
    series: list[Series] = []
    scrapes: list[AccessInterval] = []
    for item in components:
        facts += item.startups.facts({"instance": item.name}, f"log:{path.name}")
        events += merged(item.events) + _restarts(item)
        series += _series(item, window)
        if item.access.seen:
            scrapes += [
                part for part in item.access.intervals if part.end > window.start and part.start < window.end
            ]
        if item.undated:
            notes.append(f"{path}: {item.undated} telling lines have no time and could not be placed")
        if item.unsure_prompt:
            notes.append(
                f"{path}: version not known; from 0.16 on its prompt throughput has no cached tokens"
            )
    kept = [event for event in events if window.start - _EVENTS_BEFORE_SECONDS <= event.time <= window.end]
    kept.sort(key=lambda event: (event.time, event.kind, event.target))
    return LogRead(tuple(facts), tuple(kept), tuple(series), tuple(notes), tuple(scrapes))


def _restarts(item: _Component) -> list[Event]:
    version = item.startups.version
    text = f"the engine starts (version {version})" if version else "the engine starts"
    return [Event(time, "restart", item.name, text, marked=False) for time in item.startups.begun]


def _series(item: _Component, window: Window) -> Iterator[Series]:
    several = len({engine for _, engine, _ in item.points}) > 1
    for (signal, engine, producer), held in sorted(item.points.items()):
        labels = {"instance": item.name, **({"engine": engine} if several else {})}
        yield from _one_series(signal, labels, held, producer, window)
    if item.access.seen:
        parts = item.access.intervals
        for signal, index in (("http_errors_per_second", 1), ("http_requests_per_second", 0)):
            rates = {
                part.end: (part.requests, part.errors)[index] / (part.end - part.start) for part in parts
            }
            yield from _one_series(signal, {"instance": item.name}, rates, "log:vllm", window)


def _one_series(
    signal: str, labels: dict[str, str], held: dict[float, float], producer: str, window: Window
) -> Iterator[Series]:
    times = np.array(sorted(time for time in held if window.contains(time)), dtype=np.float64)
    if times.size:
        yield Series(signal, labels, times, np.array([held[time] for time in times]), producer)
