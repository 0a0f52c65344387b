"""A metrics page over the whole window, before anybody has scraped it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from diag.model import Floats
from diag.simulate.plan import Settings
from diag.simulate.telemetry.lives import Life

__all__ = ["Kind", "Page", "Row", "forever", "summed"]


class Kind(StrEnum):
    """What a row is: a late counter appears with its first increment, what is measured has noise."""

    COUNTER = "counter"
    LATE = "late"
    GAUGE = "gauge"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One series. ``values``: shape (n,); counters since the window's start and never reset, gauges NaN while
    they are not on the page. ``digits``: decimals that are shown."""

    name: str
    labels: Mapping[str, str]
    kind: Kind
    values: Floats
    digits: int


@dataclass(slots=True, eq=False)
class Page:
    """What one target exports. ``labels`` stand on every series (``job`` and ``instance`` are added).
    ``times``: seconds since the window's start, shape (n,). ``lives``: its process' lives.
    ``scrape_seconds``: how long a scrape takes, shape (n,). ``replica``: the engine's name, "" for others.
    ``own_prefix``: of the names that are the engine's own, not of a library inside it."""

    job: str
    instance: str
    labels: Mapping[str, str]
    times: Floats
    lives: tuple[Life, ...]
    scrape_seconds: Floats
    replica: str = ""
    own_prefix: str = ""
    rows: list[Row] = field(default_factory=list)

    def counter(self, name: str, values: Floats, digits: int = 0, /, **labels: str) -> None:
        """Add a counter."""
        self.rows.append(Row(name, labels, Kind.COUNTER, values, digits))

    def late(self, name: str, values: Floats, digits: int = 0, /, **labels: str) -> None:
        """Add a counter that appears with its first increment."""
        self.rows.append(Row(name, labels, Kind.LATE, values, digits))

    def gauge(self, name: str, values: Floats | float, digits: int = 0, /, **labels: str) -> None:
        """Add a gauge that is exact; a number stands for itself all the time."""
        self.rows.append(Row(name, labels, Kind.GAUGE, self._filled(values), digits))

    def measured(self, name: str, values: Floats | float, digits: int = 0, /, **labels: str) -> None:
        """Add a gauge that is read off a sensor or sampled."""
        self.rows.append(Row(name, labels, Kind.MEASURED, self._filled(values), digits))

    def histogram(
        self, name: str, bounds: tuple[float, ...], counts: Floats, sums: Floats, /, **labels: str
    ) -> None:
        """Add a classic histogram: ``counts`` per bucket, shape (n, len(bounds) + 1), ``sums`` shape (n,)."""
        upto = counts.cumsum(axis=1)
        for index, bound in enumerate(bounds):
            self.counter(f"{name}_bucket", upto[:, index], le=repr(float(bound)), **labels)
        self.counter(f"{name}_bucket", upto[:, -1], le="+Inf", **labels)
        self.counter(f"{name}_count", upto[:, -1], **labels)
        self.counter(f"{name}_sum", sums, 4, **labels)

    def _filled(self, values: Floats | float) -> Floats:
        return np.full(self.times.shape, float(values)) if isinstance(values, int | float) else values


def forever(days: float) -> tuple[Life, ...]:
    """The single life of a process that has run for ``days`` and goes on."""
    since = -86_400.0 * days
    return (Life(since, since, np.inf, Settings()),)


def summed(times: Floats, per_second: Floats) -> Floats:
    """A rate as the counter it feeds, shape (n,), 0 at the first time."""
    total: Floats = np.cumsum(np.diff(times, prepend=times[:1]) * per_second)
    return total
