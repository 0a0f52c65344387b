"""A bundle in the making: one clock and one scrape grid for everything that is put on it."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate.parts import Bundle, Record
from diag.simulate.profiles import Profile, constant
from diag.simulate.reconstructed.flow import Flow

__all__ = ["BASE", "Stage"]

BASE = 1_780_315_200.0
"""2026-06-01 12:00:00 UTC, where the source gives no date."""


@dataclass(slots=True)
class Stage:
    """Put pages, logs, events and records on it, then take ``bundle()``.

    ``start``: unix seconds of the window's start; everything else is in seconds since it. Rows of ``times`` are
    scrapes."""

    seconds: float = 2400.0
    step_seconds: float = 15.0
    start: float = BASE
    seed: int = 11
    metrics: dict[str, list[RawSeries]] = field(default_factory=dict)
    logs: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    requests: list[Record] = field(default_factory=list)
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng([self.seed, 0xCA5E])

    @property
    def times(self) -> Floats:
        """Scrapes, seconds since the window's start, shape (n,)."""
        return np.arange(0.0, self.seconds + 0.5 * self.step_seconds, self.step_seconds)

    def noisy(self, profile: Profile | float, sigma: float = 0.02) -> Floats:
        """The profile at the scrapes with a relative measuring noise."""
        course = profile if isinstance(profile, Profile) else constant(profile)
        values = course.over(self.times)
        shaken: Floats = values * (1.0 + sigma * self._rng.standard_normal(len(values)))
        return shaken

    def integral(self, profile: Profile | float, start_value: float = 0.0, sigma: float = 0.02) -> Floats:
        """A counter that grows by the profile (per second), from ``start_value``."""
        values = np.maximum(self.noisy(profile, sigma), 0.0)
        grown: Floats = start_value + np.concatenate([[0.0], np.cumsum(values[:-1])]) * self.step_seconds
        return grown

    def put(self, stem: str, name: str, labels: Mapping[str, str], values: Floats, keep: Any = None) -> None:
        """One series in the file ``stem``; rows where ``keep`` is False were not scraped. Values may be NaN."""
        kept = np.ones(len(values), dtype=np.bool_) if keep is None else np.asarray(keep)
        series = RawSeries({"__name__": name, **labels}, self.start + self.times[kept], values[kept])
        self.metrics.setdefault(stem, []).append(series)

    def target(
        self,
        stem: str,
        labels: Mapping[str, str],
        down: Iterable[tuple[float, float]] = (),
        scrape: Profile | float = 0.02,
    ) -> None:
        """What the scraper notes of a target: ``up`` and how long the scrape took (seconds)."""
        alive = self.alive(down)
        named = {"instance": labels["instance"], "job": labels["job"]}
        self.put(stem, "up", named, alive.astype(np.float64))
        self.put(stem, "scrape_duration_seconds", named, self.noisy(scrape, 0.1))

    def alive(self, down: Iterable[tuple[float, float]]) -> Any:
        """Which scrapes fall outside the spells (a boolean array)."""
        alive = np.ones(len(self.times), dtype=np.bool_)
        for begin, end in down:
            alive &= ~((self.times >= begin) & (self.times < end))
        return alive

    def say(self, log: str, at: float, text: str) -> None:
        """One line of a log, ``text`` complete with its own stamp; lines are written in order of ``at``."""
        self.logs.setdefault(log, []).append((at, text))

    def event(self, at: float, kind: str, target: str, text: str) -> None:
        """A marked event."""
        self.events.append({"time": self.start + at, "kind": kind, "target": target, "text": text})

    def record(self, made: Flow, host: str, *, turns: int = 0, **more: Any) -> None:
        """A client-side record of every request sent inside the window; those still open at its end have no
        status. ``turns``: so many requests in a row are one session's, 0 for no sessions."""
        for row in np.flatnonzero((made.sent >= 0) & (made.sent < self.seconds)):
            session = {"session": f"{host.partition(':')[0]}-s{row // turns}"} if turns else {}
            self.requests.append(_record(self, made, int(row), host, {**session, **more}))

    def bundle(self) -> Bundle:
        """The parts, without name, label and notes."""
        files = {f"logs/{name}.log.gz": _text(lines) for name, lines in sorted(self.logs.items())}
        if self.events:
            lines = msgspec.json.Encoder().encode_lines(sorted(self.events, key=lambda line: line["time"]))
            files["events.jsonl"] = lines
        meta = {
            "schema": "diag.bundle/1",
            "name": "",
            "window": {"from": self.start, "to": self.start + self.seconds},
            "step_seconds": self.step_seconds,
            "incident": None,
            "label": None,
            "notes": "",
        }
        metrics = {stem: tuple(group) for stem, group in sorted(self.metrics.items())}
        ordered = sorted(self.requests, key=lambda record: record["ts"])
        return Bundle(meta, metrics, tuple(ordered), files)


def _text(lines: list[tuple[float, str]]) -> bytes:
    ordered = sorted(lines, key=lambda line: line[0])
    return gzip.compress("".join(f"{text}\n" for _, text in ordered).encode(), mtime=0)


def _record(stage: Stage, made: Flow, row: int, host: str, more: Mapping[str, Any]) -> dict[str, Any]:
    sent, status = float(made.sent[row]), str(made.status[row])
    record: dict[str, Any] = {
        "ts": round(stage.start + sent, 3),
        "tenant": str(made.tenant[row]),
        "model": "model",
        "instance": host,
        "request_id": f"{host.partition(':')[0]}-{row:05d}",
        "prompt_tokens": int(made.prompt[row]),
        "cached_tokens": int(made.cached[row]),
    }
    if made.first[row] <= min(made.closed[row], stage.seconds):
        record["ttft_seconds"] = round(float(made.first[row]) - sent, 4)
    if made.closed[row] <= stage.seconds:
        record["duration_seconds"] = round(float(made.closed[row]) - sent, 4)
        record["status"] = status
        if status == "ok":
            record["output_tokens"] = int(made.output[row])
    return {**record, **more}
