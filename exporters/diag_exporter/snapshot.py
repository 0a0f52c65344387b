"""One sampling thread a part, immutable snapshots: a scrape never waits for a driver.

Reading and serving meet only here. The thread calls its collectors one after the other (a driver
serialises its callers anyway, and polling it harder can stall the application it is read for), and
whoever serves the page asks for what is known by now. A call that never comes back therefore stops the
thread, not the page: rows grow old and leave it, and ``Snapshot`` says which collector hangs.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from diag_exporter.families import Collector, Family, Group, Histogram, NoData, Row, Rows

__all__ = ["CollectorHealth", "Sampler", "Snapshot"]

_LOG = logging.getLogger("diag_exporter")
_GROUPS: tuple[Group, ...] = ("fast", "slow")


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """How a collector fared: ``success`` of its last run, ``seconds`` it took, ``last_success`` unix
    seconds (None: never), ``failures`` since start, ``error`` of the last failure (for the log).

    ``wedged``: the call in progress has lasted longer than rows may be old. ``stale``: rows there were,
    and they are too old to be served. ``dropped``: rows refused since start (a second row of the same
    series, a counter below 0 or not a number): one of them would cost the whole scrape."""

    success: bool
    seconds: float
    last_success: float | None
    failures: int
    error: str = ""
    wedged: bool = False
    stale: bool = False
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows that may be served at ``time``. ``families`` in serving order; ``rows`` by family.

    ``age`` is seconds since the last full pass ended, infinite before the first."""

    time: float
    families: tuple[Family, ...] = ()
    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    health: Mapping[str, CollectorHealth] = field(default_factory=dict)
    age: float = math.inf


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is known of one collector. ``at``: steady seconds of its last success; ``since``: of the
    start of the call in progress."""

    rows: Rows
    health: CollectorHealth
    at: float | None = None
    since: float | None = None


_UNKNOWN = _Kept({}, CollectorHealth(False, 0.0, None, 0))


class Sampler:
    """Runs collectors in two groups and keeps the newest snapshot."""

    def __init__(
        self,
        collectors: Sequence[Collector],
        *,
        fast_seconds: float = 1.0,
        slow_seconds: float = 15.0,
        stale_after: float = 3.0,
        clock: Callable[[], float],
        steady: Callable[[], float] = time.monotonic,
        name: str = "sampler",
    ) -> None:
        """``stale_after``: rows older than this many intervals of their group stop being served.

        ``clock`` tells unix seconds and may jump; ages and durations come from ``steady``, which may not.
        """
        self.name = name
        self._collectors = tuple(collectors)
        self._intervals: Mapping[Group, float] = {"fast": fast_seconds, "slow": slow_seconds}
        self._stale_after = stale_after
        self._clock = clock
        self._steady = steady
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = dict.fromkeys((one.name for one in self._collectors), _UNKNOWN)
        if len(self._kept) < len(self._collectors):
            raise ValueError(f"two collectors of {name} bear the same name")
        self._passed: float | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def families(self) -> tuple[Family, ...]:
        """Every family that may appear, in serving order, each once."""
        known: dict[str, Family] = {}
        for collector in self._collectors:
            for family in collector.families:
                known.setdefault(family.name, family)
        return tuple(known.values())

    def start(self) -> None:
        """Begin to sample. The thread is a daemon: a hanging driver call must not outlive the process."""
        self._thread = threading.Thread(target=self._run, name=f"sample-{self.name}", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> bool:
        """Ask the thread to end, and wait: a process killed inside a driver call can take the GPU
        with it. Return False if it still hangs after ``timeout`` seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        for collector in self._collectors:
            close = getattr(collector, "close", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    close()
        return True

    def sample(self, groups: Iterable[Group] = _GROUPS) -> None:
        """One pass over the collectors of ``groups``, in the caller's thread."""
        wanted = tuple(groups)
        # One moment for the whole pass: collectors that share a reading know it by that.
        now = self._clock()
        before = {name: one.health for name, one in self._kept.items()}
        for collector in self._collectors:
            if collector.group in wanted and not self._stopping.is_set():
                self._collect(collector, now)
        _say(before, {name: one.health for name, one in self._kept.items()})
        with self._lock:
            self._passed = self._steady()

    def snapshot(self) -> Snapshot:
        """What may be served now. Cheap: nothing is copied but references, no collector is called."""
        now = self._steady()
        with self._lock:
            kept, passed = dict(self._kept), self._passed
        # A pass that honestly takes long must not blink on the page.
        busy = sum(one.health.seconds for one in kept.values())
        rows: dict[str, tuple[Row, ...]] = {}
        health: dict[str, CollectorHealth] = {}
        for collector in self._collectors:
            mine = kept[collector.name]
            limit = self._stale_after * (self._intervals[collector.group] + busy)
            stale = mine.at is not None and now - mine.at > limit
            wedged = mine.since is not None and now - mine.since > limit
            health[collector.name] = replace(mine.health, stale=stale, wedged=wedged)
            if not stale:
                for name, some in mine.rows.items():
                    rows[name] = _joined(rows[name], some) if name in rows else tuple(some)
        age = math.inf if passed is None else max(now - passed, 0.0)
        return Snapshot(self._clock(), self.families, rows, health, age)

    def _run(self) -> None:
        due = dict.fromkeys(_GROUPS, self._steady())
        while not self._stopping.is_set():
            began = self._steady()
            groups = tuple(group for group in _GROUPS if due[group] <= began)
            self.sample(groups)
            ended = self._steady()
            # As much rest as work: whoever is slow to answer is not asked all the time.
            rested = ended + (ended - began)
            for group in groups:
                due[group] = max(due[group] + self._intervals[group], rested)
            self._stopping.wait(max(min(due.values()) - self._steady(), 0.0))

    def _collect(self, collector: Collector, now: float) -> None:
        name, before = collector.name, self._kept[collector.name]
        began = self._steady()
        self._keep(name, replace(before, since=began))
        error, rows, dropped = "", before.rows, 0
        try:
            rows, dropped = _checked(collector, collector.collect(now))
        except NoData:
            rows = {}
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}".rstrip(": ")
        ended = self._steady()
        old = before.health
        health = CollectorHealth(
            success=not error,
            seconds=ended - began,
            last_success=old.last_success if error else self._clock(),
            failures=old.failures + bool(error),
            error=error,
            dropped=old.dropped + dropped,
        )
        self._keep(name, _Kept(rows, health, before.at if error else ended))

    def _keep(self, name: str, kept: _Kept) -> None:
        with self._lock:
            self._kept[name] = kept


def _say(before: Mapping[str, CollectorHealth], after: Mapping[str, CollectorHealth]) -> None:
    """One line when something changes, not one a second, nor one a collector for the same reason."""
    failed: dict[str, list[str]] = {}
    for name, now in after.items():
        old = before[name]
        if now.error and now.error != old.error:
            failed.setdefault(now.error, []).append(name)
        elif old.error and not now.error:
            failed.setdefault("", []).append(name)
        if now.dropped > old.dropped == 0:
            _LOG.warning("%s gave rows that cannot be served; they are left out", name)
    for error, names in failed.items():
        if error:
            _LOG.warning("%s failed: %s", ", ".join(names), error)
        else:
            _LOG.info("%s: works again", ", ".join(names))


def _joined(first: Sequence[Row], second: Sequence[Row]) -> tuple[Row, ...]:
    known = {row.labels for row in first}
    return (*first, *(row for row in second if row.labels not in known))


def _checked(collector: Collector, rows: Rows) -> tuple[Rows, int]:
    """``rows`` without what would spoil the page, and how many that were.

    Raise ``ValueError`` for a family the collector does not declare or labels that don't fit: that is
    a defect of the collector, and better seen as its failure than served."""
    families = {family.name: family for family in collector.families}
    result: dict[str, tuple[Row, ...]] = {}
    dropped = 0
    for name, some in rows.items():
        family = families.get(name)
        if family is None:
            raise ValueError(f"{name} is not among the declared families")
        good: dict[tuple[str, ...], Row] = {}
        for row in some:
            if len(row.labels) != len(family.labels):
                raise ValueError(f"{name} has labels {family.labels}, a row has {row.labels}")
            if row.labels not in good and _servable(family, row.value):
                good[row.labels] = row
        result[name] = tuple(good.values())
        dropped += len(some) - len(good)
    return result, dropped


def _servable(family: Family, value: float | Histogram) -> bool:
    if isinstance(value, Histogram):
        sound = len(value.counts) == len(value.bounds) + 1 and min(value.counts) >= 0
        return family.kind == "histogram" and sound and math.isfinite(value.total)
    if family.kind == "histogram":
        return False
    # Not a number is what "unknown" looks like to a program: the series is left out instead.
    return math.isfinite(value) and (family.kind != "counter" or value >= 0)
