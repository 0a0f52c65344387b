"""Put one question to all sources and lay the answers together as a Case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from diag.engines import ENGINES
from diag.errors import NoData
from diag.model import Case, Event, Fact, Gap, Series, SourceRef, Window
from diag.signals import SIGNALS
from diag.signals.frame import Grid
from diag.signals.vocabulary import Scope
from diag.sources.attached import Logs, all_attachments, on_grid, read_logs, read_marked_events, read_records
from diag.sources.joins import joined
from diag.sources.merging import merged_gaps, merged_series, without_twins
from diag.sources.planning import chosen_window, planned, without_emptiness
from diag.sources.protocol import Fetched, Question, Source
from diag.sources.times import rfc3339, spoken

__all__ = ["fetched_signals", "gather"]

_CAPACITY = "kv_capacity_tokens"


def gather(
    sources: Sequence[Source], question: Question, *, progress: Callable[[str], None] | None = None
) -> Case:
    """All that the sources and files know about the question's window.

    ``progress`` gets a line of text before each slow step. Raises ``NoData`` when nothing at all is
    there, and whatever a source raises when it cannot answer.
    """
    say = progress or _silent
    asked = chosen_window(sources, question)
    attached = all_attachments([source.attachments() for source in sources], question)
    if attached.requests or attached.traces:
        say("reading request records")
    requests, record_notes = read_records(attached, question, asked)
    first_request = float(requests["ts"].min()) if requests is not None else None
    plan = planned(sources, question, without_emptiness(asked, sources, question, first_request))
    parts, empty = _fetched(sources, question, plan.grid, say)
    series, double_notes = merged_series(parts)
    series, twin_notes = without_twins(series)
    if attached.logs:
        say("reading logs")
    logs = read_logs(attached.logs, plan.window, _instances(series))
    series, log_notes = _with_logs(series, logs, plan.grid)
    events, event_notes = read_marked_events(attached)
    if not series and requests is None:
        raise _nothing(sources, empty, plan.window)
    facts = _ordered_facts([fact for _, part in parts for fact in part.facts], logs.facts)
    series = _with_capacity(series, facts, plan.grid)
    joins, join_notes = joined(series)
    baseline, incident = _marked(sources, question)
    notes = (
        *(str(error) for error in empty), *(note for _, part in parts for note in part.notes), *double_notes,
        *twin_notes, *record_notes, *logs.notes, *log_notes, *event_notes, *join_notes,
        *_emptiness(asked, plan.window),
    )  # fmt: skip
    return Case(
        window=plan.window,
        step_seconds=plan.grid.step,
        series=series,
        gaps=_gaps(parts, series),
        facts=facts,
        events=_ordered_events(
            [*(event for _, part in parts for event in part.events), *events, *logs.events]
        ),
        joins=joins,
        requests=requests,
        baseline=baseline,
        incident=incident,
        sources=_references(sources, question),
        notes=tuple(dict.fromkeys(notes)),
        scrape_seconds=plan.scrape_seconds,
        look_back_seconds=plan.grid.window,
        page_stalls=_stalls(parts),
    )


def _emptiness(asked: Window, window: Window) -> tuple[str, ...]:
    if window.start == asked.start:
        return ()
    return (f"there is no data before {rfc3339(window.start)}: the window begins there",)


def fetched_signals() -> tuple[str, ...]:
    """The signals that metrics carry. Those of request records are computed from the records, but for
    the few that an exporter of sessions shows."""
    shown = {name for engine in ENGINES for name in engine.signals}
    return tuple(name for name, one in SIGNALS.items() if one.scope is not Scope.REQUESTS or name in shown)


def _silent(_text: str) -> None:
    return None


def _fetched(
    sources: Sequence[Source], question: Question, grid: Grid, say: Callable[[str], None]
) -> tuple[list[tuple[str, Fetched]], list[NoData]]:
    parts: list[tuple[str, Fetched]] = []
    empty: list[NoData] = []
    for source in sources:
        say(f"asking {source.ref.ref}")
        try:
            parts.append((source.ref.ref, source.fetch(fetched_signals(), grid, question.matchers)))
        except NoData as error:
            empty.append(error)
    return parts, empty


def _nothing(sources: Sequence[Source], empty: Sequence[NoData], window: Window) -> NoData:
    if empty:
        return empty[0]
    if not sources:
        return NoData("there is no source and no request record", hint="name a store, a page or a bundle")
    held = [one for source in sources if (one := source.extent())]
    what = f"{sources[0].ref.ref} holds nothing we know from {spoken(window)}"
    own = [one for one in held if one.end < window.start or one.start > window.end]
    if own:
        return NoData(
            what, hint=f"it has data from {spoken(own[0])}: ask with --from and --to, or leave them out"
        )
    return NoData(what, hint="does --match leave anything, and are these pages of an engine or exporter?")


def _instances(series: Mapping[str, Sequence[Series]]) -> list[str]:
    found = {
        one.labels.get("instance", "")
        for name, rows in series.items() if SIGNALS[name].scope is Scope.ENGINE for one in rows
    }  # fmt: skip
    return sorted(found - {""})


def _with_logs(
    series: Mapping[str, tuple[Series, ...]], logs: Logs, grid: Grid
) -> tuple[dict[str, tuple[Series, ...]], tuple[str, ...]]:
    """Log lines stand in where no metric gives the signal for that instance; never beside one."""
    result = dict(series)
    used: set[str] = set()
    for one in logs.series:
        held = series.get(one.signal, ())
        if any(other.labels.get("instance") == one.labels.get("instance") for other in held):
            continue
        placed = on_grid(one, grid)
        if not np.isnan(placed.values).all():
            result[one.signal] = (*result.get(one.signal, ()), placed)
            used.add(one.signal)
    if not used:
        return result, ()
    ordered = {name: result[name] for name in SIGNALS if name in result}
    return ordered, (f"taken from a log, as no metric gives it: {', '.join(sorted(used))}",)


def _with_capacity(
    series: Mapping[str, tuple[Series, ...]], facts: Sequence[Fact], grid: Grid
) -> dict[str, tuple[Series, ...]]:
    """The KV pool's size as a series too, from the fact, where no metric gives it."""
    if series.get(_CAPACITY):
        return dict(series)
    times = grid.times
    rows: dict[str, tuple[dict[str, str], np.ndarray[tuple[int], np.dtype[np.float64]]]] = {}
    for fact in facts:
        try:
            tokens = float(fact.value) if fact.name == _CAPACITY else np.nan
        except ValueError:
            continue
        if np.isnan(tokens):
            continue
        _, values = rows.setdefault(
            fact.labels.get("instance", ""), (dict(fact.labels), np.full(times.size, np.nan))
        )
        since = -np.inf if fact.since is None else fact.since
        until = np.inf if fact.until is None else fact.until + grid.window
        values[(times >= since) & (times <= until)] = tokens
    made = tuple(
        Series(_CAPACITY, labels, times, values, "facts")
        for _, (labels, values) in sorted(rows.items()) if not np.isnan(values).all()
    )  # fmt: skip
    merged = {**series, **({_CAPACITY: made} if made else {})}
    return {name: merged[name] for name in SIGNALS if name in merged}


def _gaps(parts: Sequence[tuple[str, Fetched]], series: Mapping[str, object]) -> tuple[Gap, ...]:
    gaps = merged_gaps([part for _, part in parts], series)
    if parts:
        return gaps
    return tuple(
        Gap(name, "no source of metrics was given", SIGNALS[name].absence) for name in fetched_signals()
    )


def _ordered_facts(metric_facts: Sequence[Fact], log_facts: Sequence[Fact]) -> tuple[Fact, ...]:
    unique: dict[tuple[object, ...], Fact] = {}
    for fact in (*metric_facts, *log_facts):
        key = (fact.name, fact.value, tuple(sorted(fact.labels.items())), fact.since, fact.until)
        unique.setdefault(key, fact)
    return tuple(
        sorted(
            unique.values(),
            key=lambda one: (
                one.since if one.since is not None else 0.0,
                one.name,
                sorted(one.labels.items()),
                one.value,
            ),
        )
    )


def _ordered_events(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(sorted(dict.fromkeys(events), key=lambda one: (one.time, one.kind, one.target, one.text)))


def _marked(sources: Sequence[Source], question: Question) -> tuple[Window | None, Window | None]:
    baseline, incident = question.baseline, question.incident
    for source in sources:
        own_baseline, own_incident = source.marked()
        baseline, incident = baseline or own_baseline, incident or own_incident
    return baseline, incident


def _references(sources: Sequence[Source], question: Question) -> tuple[SourceRef, ...]:
    named = (("requests", question.requests), ("log", question.logs), ("events", question.events))
    files = [SourceRef(kind, str(path)) for kind, paths in named for path in paths]
    return (*(source.ref for source in sources), *files)


def _stalls(parts: Sequence[tuple[str, Fetched]]) -> dict[str, tuple[Window, ...]]:
    found: dict[str, tuple[Window, ...]] = {}
    for _, part in parts:
        for instance, windows in part.page_stalls.items():
            found.setdefault(instance, windows)
    return dict(sorted(found.items()))
