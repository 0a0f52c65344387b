"""What an engine counts, and the rows that scrapes would find."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

import numpy as np

from diag.simulate.observed import HISTOGRAMS, Engine

__all__ = ["COUNTERS", "GAUGES", "Histogram", "Tally"]

COUNTERS = (
    "prompt_tokens", "generation_tokens", "computed_tokens", "cached_tokens", "external_tokens",
    "queries_tokens", "hits_tokens", "preemptions", "finished_stop", "finished_length", "finished_abort",
    "finished_error", "http_2xx", "http_4xx", "http_5xx", "steps", "busy_seconds", "cpu_seconds",
    "draft_tokens", "accepted_tokens", "transfers", "transfer_failures", "transfer_expired",
    "lookup_misses", "client_aborts", "prefilled_tokens", "evicted_blocks",
)  # fmt: skip
GAUGES = ("running", "waiting", "waiting_capacity", "waiting_deferred", "kv_used_ratio", "resident_bytes")
_read = attrgetter(*COUNTERS)


class Histogram:
    """Counts per bucket, the last one without bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """``times`` observations of ``value``."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def add_run(self, first: float, slope: float, steps: int, times: int) -> None:
        """``times`` observations of each of first, first + slope, … (``steps`` values, ``slope`` ≥ 0)."""
        last = first + slope * (steps - 1)
        low, high = bisect_left(self.bounds, first), bisect_left(self.bounds, last)
        self.total += times * steps * 0.5 * (first + last)
        done = 0
        for bucket in range(low, high):
            below = min(max(int((self.bounds[bucket] - first) / slope) + 1, done), steps)
            self.counts[bucket] += times * (below - done)
            done = below
        self.counts[high] += times * (steps - done)


class Tally:
    """The counters as attributes, the histograms by name, and a row for each scrape."""

    __slots__ = (*COUNTERS, "_counts", "_gauges", "_rows", "_sums", "histograms")

    def __init__(self) -> None:
        for name in COUNTERS:
            setattr(self, name, 0)
        self.histograms = {name: Histogram(bounds) for name, bounds in HISTOGRAMS.items()}
        self._rows: list[tuple[float, ...]] = []
        self._gauges: list[tuple[float, ...]] = []
        self._counts: list[list[list[int]]] = []
        self._sums: list[list[float]] = []

    prompt_tokens: int
    generation_tokens: int
    computed_tokens: int
    cached_tokens: int
    external_tokens: int
    queries_tokens: int
    hits_tokens: int
    preemptions: int
    finished_stop: int
    finished_length: int
    finished_abort: int
    finished_error: int
    http_2xx: int
    http_4xx: int
    http_5xx: int
    steps: int
    busy_seconds: float
    cpu_seconds: float
    draft_tokens: int
    accepted_tokens: int
    transfers: int
    transfer_failures: int
    transfer_expired: int
    lookup_misses: int
    client_aborts: int
    prefilled_tokens: int
    evicted_blocks: int

    def scrape(self, gauges: tuple[float, ...]) -> None:
        """Write a row; ``gauges`` in the order of ``GAUGES``."""
        self._gauges.append(gauges)
        self._rows.append(_read(self))
        self._counts.append([histogram.counts.copy() for histogram in self.histograms.values()])
        self._sums.append([histogram.total for histogram in self.histograms.values()])

    def engine(self, name: str) -> Engine:
        """The rows as arrays; every counter starts from 0 at the first row."""
        gauges = np.array(self._gauges, dtype=np.float64)
        rows = np.array(self._rows, dtype=np.float64)
        rows -= rows[0]
        sums = np.array(self._sums, dtype=np.float64)
        sums -= sums[0]
        engine = Engine(name)
        engine.gauges = {gauge: gauges[:, at] for at, gauge in enumerate(GAUGES)}
        engine.counters = {counter: rows[:, at] for at, counter in enumerate(COUNTERS)}
        for at, histogram in enumerate(self.histograms):
            counts = np.array([row[at] for row in self._counts], dtype=np.float64)
            engine.histograms[histogram] = counts - counts[0]
            engine.sums[histogram] = sums[:, at]
        return engine
