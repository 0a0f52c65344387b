"""The one evaluation behind every source that holds raw samples: bundle, scraped pages, memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from diag.engines import ENGINES
from diag.engines.registry import Definition, Engine
from diag.model import Fact, Gap, Series, Window
from diag.signals.algebra import Matcher, Select, selects
from diag.signals.frame import Grid, RawSeries, SampleIndex, evaluate_many
from diag.sources.alerts import METRIC, alert_facts, of_service
from diag.sources.duplicates import drop_second_scrapes
from diag.sources.facts import Sighting, facts_from, numbers_from
from diag.sources.naming import (
    CPU_METRIC,
    canonical_labels,
    gap,
    metric_names,
    page_metric_names,
    select_names,
    serves,
    sorted_series,
)
from diag.sources.protocol import Fetched
from diag.sources.selecting import accepts
from diag.sources.stalls import page_stalls

__all__ = [
    "RawStore",
    "busy_gauges",
    "merged",
    "nominal_seconds",
    "sightings",
    "usual_distance_seconds",
    "widened",
]


class RawStore:
    """Raw samples, and what every source answers from them. A target scraped twice counts once."""

    def __init__(self, raw: Iterable[RawSeries]) -> None:
        """Keep what engine files mention; pieces of one series are joined, later samples winning."""
        mentioned = metric_names()
        scraped, alerts = [], []
        for one in raw:
            name = one.labels.get("__name__", "")
            if name in mentioned:
                scraped.append(one)
            elif name == METRIC:
                alerts.append(one)
        self.raw, self.notes = drop_second_scrapes(merged(scraped))
        self.raw += merged(alerts)
        self._index = SampleIndex(self.raw)
        self._by_name: dict[str, list[RawSeries]] = defaultdict(list)
        for one in self.raw:
            self._by_name[one.labels.get("__name__", "")].append(one)

    def extent(self) -> Window | None:
        """First to last sample, or None when there is none."""
        sized = [one for one in self.raw if one.times.size]
        if not sized:
            return None
        return Window(min(float(one.times[0]) for one in sized), max(float(one.times[-1]) for one in sized))

    def begins(self, window: Window, matchers: Sequence[Matcher] = ()) -> float | None:
        """See ``Source``."""
        for engines in ([one for one in ENGINES if serves(one)], ENGINES):
            probes = [one for engine in engines for one in self._selected(engine.probe, matchers)]
            known = {one.labels.get("instance", "") for one in _cut(probes, window)}
            up = (one for one in self._by_name.get("up", ()) if one.labels.get("instance", "") in known)
            if known:
                return min(float(one.times[0]) for one in _cut([*probes, *up], window))
        return None

    def scrape_seconds(self, window: Window) -> float | None:
        """Median distance of samples of ``up``, else of any series; None with fewer than two."""
        chosen = self._by_name.get("up") or self.raw
        return usual_distance_seconds(one.times for one in _cut(chosen[:200], window))

    def within(self, window: Window, matchers: Sequence[Matcher] = ()) -> Iterator[RawSeries]:
        """The samples inside ``window``; series without any are left out."""
        return _cut((one for one in self.raw if accepts(one.labels, matchers)), window)

    def fetch(self, signals: Sequence[str], grid: Grid, matchers: Sequence[Matcher] = ()) -> Fetched:
        """Evaluate every present engine's definition of ``signals`` on ``grid``."""
        present = [engine for engine in ENGINES if any(self._selected(engine.probe, matchers))]
        found: dict[str, list[Series]] = defaultdict(list)
        for engine in present:
            for one in self._evaluated(engine, signals, grid, matchers):
                found[one.signal].append(one)
        window = Window(grid.start - grid.window, grid.end)
        gaps: list[Gap] = [gap(name, present) for name in signals if name not in found]
        return Fetched(
            {name: sorted_series(found[name]) for name in signals if name in found},
            tuple(gaps),
            self._facts(present, window, matchers) + self._alerts(present, window, matchers),
            (),
            self.notes,
            self._stalls(present, window, matchers),
        )

    def _evaluated(
        self, engine: Engine, signals: Sequence[str], grid: Grid, matchers: Sequence[Matcher]
    ) -> Iterator[Series]:
        defined = [(name, one) for name in signals if isinstance(one := engine.signals.get(name), Definition)]
        probes = _cut(self._selected(engine.probe, matchers), Window(grid.start, grid.end))
        grid = widened(grid, usual_distance_seconds(one.times for one in probes))
        times = grid.times
        answers = evaluate_many([one.expr for _, one in defined], self._index, grid, matchers)
        for (name, _), vectors in zip(defined, answers, strict=True):
            for vector in vectors:
                if not np.isnan(vector.values).all():
                    labels = canonical_labels(vector.labels, engine, name)
                    yield Series(name, labels, times, vector.values, engine.name)

    def _selected(self, select: Select, matchers: Sequence[Matcher]) -> Iterator[RawSeries]:
        conditions = (*select.where, *matchers)
        for name in select_names(select):
            for one in self._by_name.get(name, ()):
                if accepts(one.labels, conditions):
                    yield one

    def _facts(
        self, present: Iterable[Engine], window: Window, matchers: Sequence[Matcher]
    ) -> tuple[Fact, ...]:
        facts: list[Fact] = []
        for engine in present:
            if engine.info is not None:
                seen = _cut(self._selected(engine.info, matchers), window)
                facts.extend(facts_from(engine, sightings(seen)))
            for name, select in engine.numbers.items():
                rows = (
                    (one.labels, float(one.values[-1]))
                    for one in _cut(self._selected(select, matchers), window)
                )
                facts.extend(numbers_from(engine, name, rows))
        return tuple(facts)

    def _alerts(
        self, present: Iterable[Engine], window: Window, matchers: Sequence[Matcher]
    ) -> tuple[Fact, ...]:
        instances = frozenset(
            one.labels.get("instance", "")
            for engine in present
            if serves(engine)
            for one in self._selected(engine.probe, matchers)
        )
        fired = (one for one in self._by_name.get(METRIC, ()) if of_service(one, instances, matchers))
        return alert_facts(_cut(fired, window), window)

    def _stalls(
        self, present: Iterable[Engine], window: Window, matchers: Sequence[Matcher]
    ) -> Mapping[str, tuple[Window, ...]]:
        serving = [engine for engine in present if serves(engine)]
        names = {name for engine in serving for name in page_metric_names(engine)}
        targets = {
            one.labels.get("instance", "")
            for engine in serving
            for one in self._selected(engine.probe, matchers)
        }
        pages: dict[str, list[RawSeries]] = defaultdict(list)
        for name in sorted(names | {CPU_METRIC}):
            for one in _cut(self._by_name.get(name, ()), window):
                if one.labels.get("instance", "") in targets:
                    pages[one.labels.get("instance", "")].append(one)
        up: dict[str, list[RawSeries]] = defaultdict(list)
        for one in self._by_name.get("up", ()):
            up[one.labels.get("instance", "")].append(one)
        return page_stalls(pages, up, busy_gauges(serving))


def busy_gauges(serving: Iterable[Engine]) -> frozenset[str]:
    """Names of the gauges that are above zero while an engine works."""
    names: set[str] = set()
    for engine in serving:
        definition = engine.signals.get("running_requests")
        if isinstance(definition, Definition):
            names.update(name for one in selects(definition.expr) for name in select_names(one))
    return frozenset(names)


def sightings(info: Iterable[RawSeries]) -> list[Sighting]:
    """First and last sample of each label set of an info metric."""
    seen: list[Sighting] = []
    for one in info:
        known = one.times[~np.isnan(one.values)]
        if known.size:
            seen.append(Sighting(one.labels, float(known[0]), float(known[-1])))
    return seen


def usual_distance_seconds(times: Iterable[np.ndarray[tuple[int], np.dtype[np.float64]]]) -> float | None:
    """Median distance between neighbouring samples over all series, to the millisecond."""
    distances = [np.diff(one) for one in times if one.size > 1]
    if not distances:
        return None
    return round(float(np.median(np.concatenate(distances))), 3) or None


def nominal_seconds(distance: float) -> float:
    """The configured scrape interval behind a measured one: whole seconds where it is near them."""
    whole = round(distance)
    return (
        float(whole) if whole >= 1 and abs(whole - distance) <= 0.05 * distance else round(distance, 1) or 0.1
    )


def widened(grid: Grid, scrape_seconds: float | None) -> Grid:
    """``grid`` looking back far enough for a producer that is scraped every ``scrape_seconds``.

    Exporters are often scraped less often than engines, and one look-back would lose their rates."""
    if scrape_seconds is None:
        return grid
    return replace(grid, window=max(grid.window, 4.0 * nominal_seconds(scrape_seconds)))


def merged(raw: Iterable[RawSeries]) -> list[RawSeries]:
    """Join pieces of one series; times ascending and unique, the later piece's sample winning."""
    pieces: dict[tuple[tuple[str, str], ...], list[RawSeries]] = {}
    for one in raw:
        pieces.setdefault(tuple(sorted((k, v) for k, v in one.labels.items() if v)), []).append(one)
    joined: list[RawSeries] = []
    for key in sorted(pieces):
        own = pieces[key]
        times = own[0].times if len(own) == 1 else np.concatenate([one.times for one in own])
        values = own[0].values if len(own) == 1 else np.concatenate([one.values for one in own])
        if times.size > 1 and not np.all(times[1:] > times[:-1]):
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[order]
            last = np.append(times[1:] != times[:-1], True)
            times, values = times[last], values[last]
        joined.append(RawSeries(dict(key), times, values))
    return joined


def _cut(raw: Iterable[RawSeries], window: Window) -> Iterator[RawSeries]:
    for one in raw:
        first = int(np.searchsorted(one.times, window.start, side="left"))
        past = int(np.searchsorted(one.times, window.end, side="right"))
        if past > first:
            yield RawSeries(one.labels, one.times[first:past], one.values[first:past])
