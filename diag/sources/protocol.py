"""The one face of every source, and the question that is put to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from diag.model import Event, Fact, Gap, Series, SourceRef, Window
from diag.signals.algebra import Matcher
from diag.signals.frame import Grid, RawSeries

__all__ = ["Attachments", "Fetched", "Question", "Source"]


@dataclass(frozen=True, slots=True)
class Question:
    """What the operator asked, with the clock already read.

    ``window`` is None when the source's own extent is meant (a bundle). ``incident`` and
    ``baseline`` are what a person marked. ``matchers`` (``--match``) narrow every query.
    """

    now: float
    window: Window | None = None
    baseline: Window | None = None
    incident: Window | None = None
    matchers: tuple[Matcher, ...] = ()
    requests: tuple[Path, ...] = ()
    requests_map: Mapping[str, str] = field(default_factory=dict)
    requests_preset: str | None = None
    logs: tuple[Path, ...] = ()
    events: tuple[Path, ...] = ()
    scrape_for_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Attachments:
    """What lies beside the metrics in a bundle. Paths are real files, read by ``diag.records``."""

    requests: tuple[Path, ...] = ()
    traces: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()
    events: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one source delivered for a list of signals."""

    series: Mapping[str, tuple[Series, ...]]
    gaps: tuple[Gap, ...] = ()
    facts: tuple[Fact, ...] = ()
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()
    page_stalls: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)


class Source(Protocol):
    """A door to metrics. Opening it checks that somebody is behind it."""

    @property
    def ref(self) -> SourceRef:
        """Kind and address, without credentials."""

    def extent(self) -> Window | None:
        """The time it holds data for; None when it is open-ended (a live store)."""

    def marked(self) -> tuple[Window | None, Window | None]:
        """Baseline and incident a person marked in it (a bundle's ``incident``), else None."""

    def begins(self, window: Window, matchers: Sequence[Matcher] = ()) -> float | None:
        """The first time in ``window`` (unix seconds) at which a serving engine has a sample, be it of a
        scrape in vain; where none serves, anything; None when nothing has."""

    def scrape_seconds(self, window: Window) -> float | None:
        """The usual distance between samples in ``window``; None when unknown."""

    def fetch(self, signals: Sequence[str], grid: Grid, matchers: Sequence[Matcher] = ()) -> Fetched:
        """Evaluate every engine's definition of ``signals`` on ``grid``."""

    def raw(self, window: Window, matchers: Sequence[Matcher] = ()) -> Iterator[RawSeries]:
        """Raw samples of every metric that any engine file mentions (for ``diag record``)."""

    def attachments(self) -> Attachments:
        """Records, traces, logs and events that came with it."""
