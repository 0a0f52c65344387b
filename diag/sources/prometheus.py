"""Any Prometheus-compatible store: the store aggregates, only answers travel."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import sleep as real_sleep

import numpy as np

from diag.engines import ENGINES
from diag.engines import engine as engine_called
from diag.engines.registry import Definition, Engine
from diag.errors import NoData, QueryRejected, QueryTooExpensive
from diag.model import Fact, Gap, Series, SourceRef, Window
from diag.signals import SIGNALS
from diag.signals.algebra import Aggregate, Gauge, Matcher, Select
from diag.signals.frame import Grid, RawSeries
from diag.signals.promql import selector, write
from diag.sources.access import Access, Client
from diag.sources.alerts import alert_facts, alert_selectors
from diag.sources.duplicates import SCRAPER_LABELS, subset_groups
from diag.sources.evaluation import sightings, usual_distance_seconds, widened
from diag.sources.facts import Sighting, facts_from, numbers_from
from diag.sources.naming import (
    START_METRIC,
    canonical_labels,
    gap,
    metric_names,
    select_names,
    serves,
    sorted_series,
)
from diag.sources.promapi import Api
from diag.sources.promstalls import live_page_stalls
from diag.sources.protocol import Attachments, Fetched
from diag.sources.times import spoken

__all__ = ["PrometheusSource"]

_LOOK_AROUND_SECONDS = 30 * 86_400.0
_RECENT_SECONDS = 600.0
_LOOKS = 100
_MOST_NAMES = 200
_EVERY_INFO_RAW_BELOW = 64
_FEW_ALERTS = 50
_RULES_SECONDS = 15.0


class PrometheusSource:
    """A store behind its query API. Opening it asks one trivial query."""

    def __init__(
        self, url: str, access: Access | None = None, *, sleep: Callable[[float], None] = real_sleep
    ) -> None:
        """``url`` may hold a path prefix, and user and password (taken out at once). ``sleep`` is
        what retries wait with. Raises the ``SourceError`` leaves."""
        client = Client(url, access, sleep=sleep)
        self._ref = SourceRef("prometheus", client.url)
        self._api = Api(client)
        self._api.open()

    @property
    def ref(self) -> SourceRef:
        """Kind and address, without credentials."""
        return self._ref

    def close(self) -> None:
        """Drop the connections."""
        self._api.close()

    def extent(self) -> Window | None:
        """None: a store is open-ended."""
        return None

    def marked(self) -> tuple[Window | None, Window | None]:
        """Nothing is marked in a store."""
        return None, None

    def attachments(self) -> Attachments:
        """A store has none."""
        return Attachments()

    def begins(self, window: Window, matchers: Sequence[Matcher] = ()) -> float | None:
        """See ``Source``; looked for in two passes, to within a ten-thousandth of the window or a second."""
        try:
            for engines in ([one for one in ENGINES if serves(one)], ENGINES):
                first = self._first(engines, window, matchers)
                if first is not None:
                    closer = self._first(engines, Window(first.start, first.end), matchers)
                    return (closer or first).start
        except (QueryRejected, QueryTooExpensive):
            return window.start  # not found out: then the window stays as it was asked for
        return None

    def _first(self, engines: Sequence[Engine], window: Window, matchers: Sequence[Matcher]) -> Window | None:
        """The hundredth of ``window`` in which ``engines``, or scrapes of them in vain, are first seen."""
        step = max(window.seconds / _LOOKS, 1.0)
        grid = Grid(window.start + step, max(window.end, window.start + step), step, step)
        probes = [Aggregate("count", Gauge(one.probe), ("instance",)) for one in engines]
        rows = self._api.ranged(" or ".join(f"({write(p, step, matchers)})" for p in probes), grid)
        if not rows:
            return None
        names = sorted({row.labels.get("instance", "") for row in rows} - {""})[:_MOST_NAMES]
        about = Matcher("instance", "=~", "|".join(re.escape(name) for name in names))
        up = Aggregate("count", Gauge(Select(("up",), (about,))), ("instance",))
        rows += self._api.ranged(write(up, step, matchers), grid)
        first = min(float(grid.times[~np.isnan(row.values)][0]) for row in rows)
        return Window(max(first - step, window.start), first)

    def scrape_seconds(self, window: Window) -> float | None:
        """Median distance of raw samples of ``up`` (else of an engine's probe) at the window's end."""
        recent = Window(max(window.start, window.end - _RECENT_SECONDS), window.end)
        probes = [name for engine in ENGINES for name in select_names(engine.probe)]
        return self._distance(["up"], recent) or self._distance(list(dict.fromkeys(probes)), recent)

    def _distance(
        self, names: Sequence[str], recent: Window, matchers: Sequence[Matcher] = ()
    ) -> float | None:
        for name in names:
            rows = self._api.samples(selector(name, matchers), recent, 1, 1.0)
            found = usual_distance_seconds(one.times for one in rows)
            if found:
                return found
        return None

    def fetch(self, signals: Sequence[str], grid: Grid, matchers: Sequence[Matcher] = ()) -> Fetched:
        """One range query for each signal of each engine that is there.

        ``NoData`` when no engine has a series in the window; its line names a time that has some.
        A query the store refuses becomes a gap and a note."""
        window = Window(grid.start - grid.window, grid.end)
        targets = self._targets(window, matchers)
        if not targets:
            raise self._no_data(window)
        present = [engine_called(name) for name in targets]
        narrowed, notes = self._narrowed(targets, window, matchers)
        series, refused = self._evaluated(signals, grid, narrowed)
        gaps = [
            Gap(name, refused[name], SIGNALS[name].absence) if name in refused else gap(name, present)
            for name in signals
            if name not in series
        ]
        notes += [f"{name} could not be asked: {why}" for name, why in sorted(refused.items())]
        serving = [engine for engine in present if serves(engine)]
        instances = _served(targets)
        scrape = self.scrape_seconds(window) or grid.step
        stalls = live_page_stalls(self._api, serving, instances, grid, scrape, matchers)
        facts = [fact for engine in present for fact in self._facts(engine, window, matchers)]
        facts += alert_facts(self._alerts(instances, window, matchers), window)
        notes += [f"{self._ref.ref} warns: {said}" for said in sorted(self._api.warnings)]
        return Fetched(series, tuple(gaps), tuple(facts), (), tuple(notes), stalls)

    def raw(self, window: Window, matchers: Sequence[Matcher] = ()) -> Iterator[RawSeries]:
        """Raw samples of every metric that an engine file mentions and the store has, by name."""
        pattern = Matcher("__name__", "=~", "|".join(sorted(metric_names())))
        everything = "{" + ",".join(selector("x", [one])[2:-1] for one in (pattern, *matchers)) + "}"
        query = f"count by (__name__) (last_over_time({everything}[{round(window.seconds * 1000)}ms]))"
        scrape = self.scrape_seconds(window) or 15.0
        for labels, count in sorted(
            self._api.instant(query, window.end), key=lambda row: row[0].get("__name__", "")
        ):
            yield from self._api.samples(selector(labels["__name__"], matchers), window, int(count), scrape)
        served = _served(self._targets(window, matchers))
        yield from self._alerts(served, window, matchers)

    def _alerts(
        self, instances: Iterable[str], window: Window, matchers: Sequence[Matcher]
    ) -> Iterator[RawSeries]:
        """Raw samples of the alerts that fired, each series once."""
        seen: set[tuple[tuple[str, str], ...]] = set()
        for asked in alert_selectors(instances, matchers):
            for one in self._api.samples(asked, window, _FEW_ALERTS, _RULES_SECONDS):
                key = tuple(sorted(one.labels.items()))
                if key not in seen:
                    seen.add(key)
                    yield one

    def _targets(self, window: Window, matchers: Sequence[Matcher]) -> dict[str, list[dict[str, str]]]:
        """Names of engines that have series in the window, with the (instance, scraper) pairs that do."""
        found: dict[str, list[dict[str, str]]] = {}
        by = ("instance", *SCRAPER_LABELS)
        for engine in ENGINES:
            query = write(Aggregate("count", Gauge(engine.probe), by), window.seconds, matchers)
            rows = [labels for labels, _ in self._api.instant(query, window.end)]
            if rows:
                found[engine.name] = rows
        return found

    def _narrowed(
        self, targets: dict[str, list[dict[str, str]]], window: Window, matchers: Sequence[Matcher]
    ) -> tuple[dict[str, tuple[Matcher, ...]], list[str]]:
        """Matchers for each engine that leave out second scrapes of the same targets."""
        narrowed: dict[str, tuple[Matcher, ...]] = {}
        notes: list[str] = []
        starts: dict[tuple[str, str, str], float] | None = None
        for engine, rows in targets.items():
            extra: list[Matcher] = []
            for label in SCRAPER_LABELS:
                members = _members(rows, label)
                for dropped, kept in subset_groups(members):
                    starts = self._starts(window, matchers) if starts is None else starts
                    if _one_process(starts, label, dropped, kept, members[dropped]):
                        extra.append(Matcher(label, "!=", dropped))
                        twice = ", ".join(sorted(members[dropped])[:3])
                        notes.append(
                            f"{twice} scraped twice for {engine_called(engine).title}"
                            f" ({label}={kept} and {label}={dropped}); counted once"
                        )
            narrowed[engine] = (*matchers, *extra)
        return narrowed, notes

    def _starts(self, window: Window, matchers: Sequence[Matcher]) -> dict[tuple[str, str, str], float]:
        """Process start times by (scraper label, its value, instance)."""
        found: dict[tuple[str, str, str], float] = {}
        query = f"last_over_time({selector(START_METRIC, matchers)}[{round(window.seconds * 1000)}ms])"
        for labels, value in self._api.instant(query, window.end):
            for label in SCRAPER_LABELS:
                found[(label, labels.get(label, ""), labels.get("instance", ""))] = value
        return found

    def _evaluated(
        self, signals: Sequence[str], grid: Grid, narrowed: dict[str, tuple[Matcher, ...]]
    ) -> tuple[dict[str, tuple[Series, ...]], dict[str, str]]:
        jobs: list[tuple[Engine, str, str]] = []
        recent = Window(max(grid.start, grid.end - _RECENT_SECONDS), grid.end)
        for engine, matchers in ((engine_called(name), narrowed[name]) for name in narrowed):
            look_back = widened(grid, self._distance(select_names(engine.probe), recent, matchers)).window
            for name in signals:
                definition = engine.signals.get(name)
                if isinstance(definition, Definition):
                    jobs.append((engine, name, write(definition.expr, look_back, matchers)))
        found: dict[str, list[Series]] = defaultdict(list)
        refused: dict[str, str] = {}
        answers = self._api.parallel([(query, grid) for _, _, query in jobs])
        for (engine, name, _), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, (QueryRejected, QueryTooExpensive)):
                refused[name] = answer.what
            elif isinstance(answer, Exception):
                raise answer
            else:
                found[name].extend(
                    Series(
                        name, canonical_labels(row.labels, engine, name), grid.times, row.values, engine.name
                    )
                    for row in answer
                    if not np.isnan(row.values).all()
                )
        if jobs and len(refused) == len({name for _, name, _ in jobs}):
            raise QueryRejected(
                next(iter(refused.values())), hint="every query was refused; ask the store's operator"
            )
        return {name: sorted_series(found[name]) for name in signals if found.get(name)}, refused

    def _facts(self, engine: Engine, window: Window, matchers: Sequence[Matcher]) -> tuple[Fact, ...]:
        numbers: tuple[Fact, ...] = ()
        for name, select in engine.numbers.items():
            found = self._api.instant(write(Gauge(select), window.seconds, matchers), window.end)
            numbers += numbers_from(engine, name, found)
        if engine.info is None:
            return numbers
        query = write(Gauge(engine.info), window.seconds, matchers)
        rows = [labels for labels, _ in self._api.instant(query, window.end)]
        by_instance: dict[str, list[dict[str, str]]] = defaultdict(list)
        for labels in rows:
            by_instance[labels.get("instance", "")].append(labels)
        # In a large fleet only what changed is worth its raw samples.
        chosen = {
            who for who, sets in by_instance.items() if len(rows) <= _EVERY_INFO_RAW_BELOW or len(sets) > 1
        }
        seen = [Sighting(sets[0], None, None) for who, sets in by_instance.items() if who not in chosen]
        if chosen:
            only = Matcher("instance", "=~", "|".join(re.escape(who) for who in sorted(chosen)))
            for name in select_names(engine.info):
                asked = selector(name, (*engine.info.where, *matchers, only))
                seen += sightings(self._api.samples(asked, window, len(rows), 1.0))
        return numbers + facts_from(engine, seen)

    def _no_data(self, window: Window) -> NoData:
        what = f"{self._ref.ref} holds no engine's or exporter's series from {spoken(window)}"
        around = Grid(window.start - _LOOK_AROUND_SECONDS, window.end + _LOOK_AROUND_SECONDS, 3600.0, 3600.0)
        for engine in sorted(ENGINES, key=lambda one: not serves(one)):
            rows = self._api.ranged(write(Aggregate("count", Gauge(engine.probe), ()), 3600.0), around)
            if not rows:
                continue
            times = around.times[~np.isnan(rows[0].values)]
            near = times[np.argmin(np.abs(times - window.end))]
            block = _block(times, float(near), 2 * around.step)
            has = Window(block.start - around.step, block.end)
            return NoData(what, hint=f"{engine.title} has data from {spoken(has)}: ask with --from and --to")
        return NoData(
            what, hint="is this the store that scrapes the engines? `diag check` says what it looks for"
        )


def _served(targets: dict[str, list[dict[str, str]]]) -> frozenset[str]:
    """The instances of serving engines among ``targets``."""
    return frozenset(
        row.get("instance", "")
        for name, rows in targets.items()
        if serves(engine_called(name))
        for row in rows
    )


def _members(rows: Iterable[dict[str, str]], label: str) -> dict[str, frozenset[str]]:
    """Which instances each value of ``label`` covers."""
    members: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.get("instance"):
            members[row.get(label, "")].add(row["instance"])
    return {who: frozenset(instances) for who, instances in members.items()}


def _one_process(
    starts: dict[tuple[str, str, str], float], label: str, dropped: str, kept: str, instances: Iterable[str]
) -> bool:
    """Whether nothing speaks against two scrapers seeing the same processes."""
    for instance in instances:
        one, other = starts.get((label, dropped, instance)), starts.get((label, kept, instance))
        if one is not None and other is not None and one != other:
            return False
    return True


def _block(times: np.ndarray[tuple[int], np.dtype[np.float64]], near: float, reach: float) -> Window:
    """The run of ``times`` around ``near`` without a hole longer than ``reach``."""
    cuts = np.flatnonzero(np.diff(times) > reach)
    where = int(np.searchsorted(times, near))
    first = int(cuts[cuts < where].max() + 1) if (cuts < where).any() else 0
    last = int(cuts[cuts >= where].min()) if (cuts >= where).any() else times.size - 1
    return Window(float(times[first]), float(times[last]))
