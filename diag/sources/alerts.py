"""Which alerts fired: what a server that evaluates rules writes down about them, as facts.

Prometheus, and whatever evaluates rules like it, keeps a series ``ALERTS`` for each alert that is pending or
firing. Taken are those of an LLM service (``service="llm"``, as the shipped rules label theirs) and those
about an engine that is there; what else pages in the same store belongs to other people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from diag.model import Fact, Floats, Window
from diag.signals.algebra import Matcher
from diag.signals.frame import RawSeries
from diag.signals.promql import selector
from diag.sources.facts import keep_labels
from diag.sources.selecting import accepts

__all__ = ["METRIC", "alert_facts", "alert_selectors", "of_service"]

METRIC = "ALERTS"
_FIRING = Matcher("alertstate", "=", "firing")
_SERVICE = Matcher("service", "=", "llm")
_MOST_INSTANCES = 200
_APART = 4.0
"""Samples further apart than this many times their usual distance are two firings."""


def alert_selectors(instances: Iterable[str], matchers: Sequence[Matcher] = ()) -> tuple[str, ...]:
    """What to ask a store for; an alert may answer to both."""
    known = sorted(name for name in instances if name)[:_MOST_INSTANCES]
    about = Matcher("instance", "=~", "|".join(re.escape(name) for name in known))
    conditions = [(_FIRING, _SERVICE, *matchers)]
    if known:
        conditions.append((_FIRING, about, *matchers))
    return tuple(selector(METRIC, one) for one in conditions)


def of_service(one: RawSeries, instances: frozenset[str], matchers: Sequence[Matcher] = ()) -> bool:
    """Whether a series is one that ``alert_selectors`` would have asked for."""
    labels = one.labels
    if labels.get("__name__") != METRIC or not accepts(labels, (_FIRING, *matchers)):
        return False
    return accepts(labels, (_SERVICE,)) or labels.get("instance", "") in instances


def alert_facts(raw: Iterable[RawSeries], window: Window) -> tuple[Fact, ...]:
    """One fact ``alert`` for each time that an alert fired: its name, from when to when.

    ``since`` is None where it fired at the window's start already, ``until`` where it does at its end."""
    found: dict[tuple[object, ...], Fact] = {}
    for one in raw:
        name, labels = one.labels.get("alertname", ""), keep_labels(one.labels)
        for since, until in _runs(one.times[np.isfinite(one.values)], window) if name else ():
            fact = Fact("alert", name, labels, METRIC, since, until)
            found.setdefault((name, *sorted(labels.items()), since), fact)
    return tuple(found.values())


def _runs(times: Floats, window: Window) -> Iterator[tuple[float | None, float | None]]:
    if not times.size:
        return
    usual = float(np.median(np.diff(times))) if times.size > 1 else window.seconds
    cuts = np.flatnonzero(np.diff(times) > _APART * usual)
    for first, last in zip([0, *(cuts + 1)], [*cuts, times.size - 1], strict=True):
        since, until = float(times[first]), float(times[last])
        yield (
            since if since - window.start > usual else None,
            until if window.end - until > usual else None,
        )
