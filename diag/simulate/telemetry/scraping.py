"""Prometheus at work: which pages came, what stood on them then, and what goes wrong on the way."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate.plan import Degradation, Plan
from diag.simulate.telemetry.lives import Life, place_in
from diag.simulate.telemetry.page import Kind, Page, Row

__all__ = ["scraped"]

_TIMEOUT_SECONDS = 10.0
_REFUSED_SECONDS = 0.001
_HISTORY_SPAN_SECONDS = 600.0
_RENAMED = "inference_"

_Bools = NDArray[np.bool_]
_Places = NDArray[np.intp]


def scraped(page: Page, plan: Plan) -> list[RawSeries]:
    """The series of ``page`` as a store holds them, ``up`` and ``scrape_duration_seconds`` among them.

    A failed scrape leaves ``up`` 0 and no other sample. Counters start anew with each life of the
    process; what it counted before the window is taken from the rates of the window's beginning."""
    flaws, times = plan.degradation, page.times
    rng = np.random.default_rng([plan.seed, crc32(f"{page.job} {page.instance}".encode())])
    place = place_in(page.lives, times)
    tried = _tried(page, flaws)
    seconds = np.where(
        place < 0, _REFUSED_SECONDS, page.scrape_seconds * rng.lognormal(0.0, 0.15, times.size)
    )
    lost = (rng.random(times.size) < flaws.lost_ratio) | (seconds >= _TIMEOUT_SECONDS)
    seconds = np.where(lost, _TIMEOUT_SECONDS, seconds)
    came = tried & ~lost & (place >= 0)
    stamps = _stamps(page, plan, rng)
    source = _source(page, flaws)
    series = _rows(page, place, flaws, rng, source, came, stamps)
    if plan.shown.up:
        series += _target(page, stamps[tried], came[tried], seconds[tried])
    return series


def _tried(page: Page, flaws: Degradation) -> _Bools:
    tried = np.ones(page.times.shape, dtype=np.bool_)
    for start, end in flaws.gaps:
        tried &= (page.times < start) | (page.times >= end)
    for start, replica in flaws.vanished:
        if replica == page.replica:
            tried &= page.times < start
    return tried


def _stamps(page: Page, plan: Plan, rng: np.random.Generator) -> Floats:
    """Unix seconds in whole milliseconds, ascending."""
    most = plan.step_seconds / 3.0
    late = np.clip(rng.normal(0.0, plan.degradation.jitter_seconds, page.times.size), -most, most)
    stamps: Floats = np.rint((plan.start + page.times + late) * 1000.0) / 1000.0
    return stamps


def _source(page: Page, flaws: Degradation) -> _Places:
    """From which moment the page that is shown at each time stems: a frozen one repeats itself."""
    source = np.arange(page.times.size)
    for start, end, replica in flaws.frozen:
        if replica == page.replica:
            held = max(int(np.searchsorted(page.times, start)) - 1, 0)
            source[(page.times >= start) & (page.times < end)] = held
    return source


def _rows(
    page: Page,
    place: _Places,
    flaws: Degradation,
    rng: np.random.Generator,
    source: _Places,
    came: _Bools,
    stamps: Floats,
) -> list[RawSeries]:
    shown = _values(page, place, flaws.noise_ratio, rng)[:, source[came]]
    times = stamps[came]
    there = np.isfinite(shown)
    late = np.array([row.kind is Kind.LATE for row in page.rows], dtype=np.bool_)
    there[late] &= shown[late] > 0.0
    series: list[RawSeries] = []
    labels = {"instance": page.instance, "job": page.job, **page.labels}
    for row, values, seen in zip(page.rows, shown, there, strict=True):
        if not seen.any():
            continue
        if not seen.all():
            values, when = values[seen], times[seen]
        else:
            when = times
        one = RawSeries({"__name__": row.name, **labels, **row.labels}, when, values)
        series += _spoilt(one, page, flaws, stamps)
    return series


def _values(page: Page, place: _Places, noise_ratio: float, rng: np.random.Generator) -> Floats:
    """What stands on the page at each time of the grid, shape (rows, n)."""
    values = np.array([row.values for row in page.rows], dtype=np.float64).reshape(-1, page.times.size)
    counts = np.array([row.kind in (Kind.COUNTER, Kind.LATE) for row in page.rows], dtype=np.bool_)
    measured = np.array([row.kind is Kind.MEASURED for row in page.rows], dtype=np.bool_)
    values[counts] = _counted(values[counts], page, place)
    noise = rng.normal(0.0, noise_ratio, (int(measured.sum()), page.times.size))
    values[measured] *= 1.0 + np.clip(noise, -0.5, 0.5)
    return _rounded(values, page.rows)


def _rounded(values: Floats, rows: Sequence[Row]) -> Floats:
    digits = np.array([row.digits for row in rows])
    for number in np.unique(digits):
        chosen = digits == number
        values[chosen] = np.round(values[chosen], int(number))
    return values


def _counted(values: Floats, page: Page, place: _Places) -> Floats:
    """Counters as each life shows them, shape as ``values``."""
    shown = np.zeros_like(values)
    for index, life in enumerate(page.lives):
        if index == 0:
            before = _history(values, page.times, life)
        else:
            before = -_at_start(values, page.times, page.lives[index - 1].until, life.since)
        inside = place == index
        shown[:, inside] = np.maximum(values[:, inside] + before[:, np.newaxis], 0.0)
    return shown


def _history(values: Floats, times: Floats, life: Life) -> Floats:
    """What was counted before the window, at the rates with which it begins. Shape (rows,)."""
    last = int(np.searchsorted(times, min(_HISTORY_SPAN_SECONDS, life.until)))
    last = min(max(last, 0), times.size - 1)
    span = float(times[last]) if times.size else 0.0
    if span <= 0.0:
        return np.zeros(values.shape[0])
    history: Floats = np.rint((values[:, last] - values[:, 0]) / span * max(-life.since, 0.0))
    return history


def _at_start(values: Floats, times: Floats, down: float, up: float) -> Floats:
    """The counters' values at ``up``; nothing counts between ``down`` and ``up``. Shape (rows,)."""
    before = max(int(np.searchsorted(times, up, side="right")) - 1, 0)
    after = min(before + 1, times.size - 1)
    if times[before] >= down or after == before:
        return values[:, before].copy()
    step = float(times[after] - times[before])
    share = (down - float(times[before])) / max(step - (up - down), 1e-9)
    start: Floats = values[:, before] + (values[:, after] - values[:, before]) * min(max(share, 0.0), 1.0)
    return start


def _spoilt(one: RawSeries, page: Page, flaws: Degradation, stamps: Floats) -> list[RawSeries]:
    """``one`` as the telemetry's own faults leave it: under two names, or NaN from some time on."""
    name = one.labels["__name__"]
    if not page.own_prefix or not name.startswith(page.own_prefix):
        return [one]
    for start, replica in flaws.nan:
        if replica == page.replica:
            after = one.times >= _first(page, stamps, start)
            one = RawSeries(one.labels, one.times, np.where(after, np.nan, one.values))
    for start, replica in flaws.renamed:
        if replica == page.replica:
            other = {**one.labels, "__name__": _RENAMED + name.removeprefix(page.own_prefix)}
            before = one.times < _first(page, stamps, start)
            parts = [
                RawSeries(one.labels, one.times[before], one.values[before]),
                RawSeries(other, one.times[~before], one.values[~before]),
            ]
            return [part for part in parts if part.times.size]
    return [one]


def _first(page: Page, stamps: Floats, start: float) -> float:
    """When the first scrape from ``start`` on came, unix seconds."""
    index = int(np.searchsorted(page.times, start))
    return float(stamps[index]) if index < stamps.size else np.inf


def _target(page: Page, stamps: Floats, came: _Bools, seconds: Floats) -> list[RawSeries]:
    labels = {"instance": page.instance, "job": page.job, **page.labels}
    rows = {"up": came.astype(np.float64), "scrape_duration_seconds": np.round(seconds, 6)}
    return [RawSeries({"__name__": name, **labels}, stamps, values) for name, values in rows.items()]
