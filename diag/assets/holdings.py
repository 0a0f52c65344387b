"""What a store holds at one moment, as far as our queries read it: one question a metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from diag.assets.queries import Selection, matches
from diag.engines import ENGINES
from diag.errors import QueryRejected, QueryTooExpensive, SourceError
from diag.model import Window
from diag.signals.algebra import Matcher, spellings
from diag.signals.frame import Grid
from diag.sources.access import Access
from diag.sources.opening import store_address
from diag.sources.promapi import PARALLEL_CALLS, Api
from diag.sources.prometheus import PrometheusSource

__all__ = ["Answer", "Holdings", "elsewhere", "is_idle"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows a query gave (their labels), or why the store refused it."""

    rows: tuple[Mapping[str, str], ...] = ()
    refusal: str = ""


class Holdings:
    """The series of the store behind ``api`` that have a sample in ``window``; queries are evaluated at
    its end. ``names`` are the metrics that may be there, as the store lists them."""

    def __init__(self, api: Api, names: frozenset[str], window: Window) -> None:
        self._api = api
        self._window = window
        self._listed = names
        self._labels: dict[str, tuple[str, ...]] = {}
        self._shapes: dict[str, tuple[Mapping[str, str], ...]] = {}
        self._answers: dict[str, Answer] = {}

    @property
    def window(self) -> Window:
        """Where series are looked for."""
        return self._window

    @property
    def names(self) -> frozenset[str]:
        """The metrics looked at so far that are there."""
        return frozenset(name for name, shapes in self._shapes.items() if shapes)

    @property
    def listed(self) -> frozenset[str]:
        """Every metric that the store lists, some of them perhaps from outside the window."""
        return self._listed

    def look(self, wanted: Iterable[Selection]) -> None:
        """Ask once for each metric of ``wanted`` which values the labels in question have."""
        labels: dict[str, set[str]] = {}
        patterns: list[Selection] = []
        for one in wanted:
            if one.name:
                used = {matcher.label for matcher in one.matchers if not is_idle(matcher)}
                labels.setdefault(one.name, set()).update(used)
            else:
                patterns.append(one)
        new = {
            name: tuple(sorted(used.union(self._labels.get(name, ()))))
            for name, used in labels.items()
            if name not in self._labels or not used <= set(self._labels[name])
        }
        self._labels.update(new)
        there = [name for name in new if name in self._listed]
        self._shapes.update(dict.fromkeys(set(new) - set(there), ()))
        queries = {name: self._shape_query(Selection(name), new[name]) for name in there}
        answers = self.ask([*queries.values(), *(self._count_query(one) for one in patterns)])
        for name, query in queries.items():
            self._shapes[name] = answers[query].rows

    def there(self, one: Selection) -> bool:
        """Whether a series of ``one`` has a sample in the window."""
        if not one.name:
            return bool(self.ask([self._count_query(one)])[self._count_query(one)].rows)
        return any(_fit(one.matchers, shape) for shape in self.shapes(one))

    def shapes(self, one: Selection) -> tuple[Mapping[str, str], ...]:
        """The values that the labels of ``one`` take together on its metric."""
        used = {matcher.label for matcher in one.matchers if not is_idle(matcher)}
        if one.name not in self._labels or not used <= set(self._labels[one.name]):
            self.look([one])
        return self._shapes[one.name]

    def ask(self, queries: Iterable[str]) -> dict[str, Answer]:
        """Evaluate queries at the window's end, eight at once; a refusal is an answer, too.

        Raises the other ``SourceError`` leaves."""
        asked = list(dict.fromkeys(queries))
        new = [query for query in asked if query not in self._answers]
        with ThreadPoolExecutor(max_workers=PARALLEL_CALLS) as pool:
            self._answers.update(zip(new, pool.map(self._one, new), strict=True))
        return {query: self._answers[query] for query in asked}

    def producers(self) -> Iterator[str]:
        """Our names of the producers that are there."""
        probes = {
            engine.name: [
                Selection(spelling, engine.probe.where)
                for name in engine.probe.names
                for spelling in spellings(name)
            ]
            for engine in ENGINES
        }
        self.look(one for several in probes.values() for one in several)
        yield from (name for name, several in probes.items() if any(map(self.there, several)))

    def _one(self, query: str) -> Answer:
        try:
            return Answer(tuple(labels for labels, _ in self._api.instant(query, self._window.end)))
        except (QueryRejected, QueryTooExpensive) as error:
            return Answer(refusal=error.what)

    def _shape_query(self, one: Selection, labels: tuple[str, ...]) -> str:
        return f"group by ({', '.join(labels)}) (last_over_time({one}[{self._span()}]))"

    def _count_query(self, one: Selection) -> str:
        return f"count(last_over_time({one}[{self._span()}]))"

    def _span(self) -> str:
        return f"{max(1, round(self._window.seconds))}s"


def elsewhere(url: str, window: Window, access: Access | None) -> tuple[str, ...]:
    """When the store at ``url`` does hold something of ours, where it holds nothing in ``window``."""
    source = PrometheusSource(store_address(url), access)
    try:
        source.fetch((), Grid(window.start, window.end, max(1.0, window.seconds), window.seconds))
    except SourceError as error:
        return (error.hint or error.what,)
    finally:
        source.close()
    return ()


def is_idle(matcher: Matcher) -> bool:
    """Whether a matcher lets everything through, as a dashboard's "All" does."""
    return matcher.op == "=~" and matcher.value == ".*"


def _fit(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    return all(is_idle(matcher) or matches(matcher, labels.get(matcher.label, "")) for matcher in matchers)
