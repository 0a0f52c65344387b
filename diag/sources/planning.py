"""Choose the window, the grid and its look-back for a question and the sources it is put to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from diag.errors import UsageError
from diag.model import Window
from diag.signals.frame import Grid
from diag.sources.evaluation import nominal_seconds
from diag.sources.protocol import Question, Source
from diag.sources.times import rfc3339

__all__ = ["Plan", "chosen_window", "planned", "without_emptiness"]

_LIVE_SECONDS = 3600.0
_FALLBACK_SCRAPE_SECONDS = 15.0
_GRID_POINTS = 1000
_LEAST_LOOK_BACK_SECONDS = 10.0
_CLOCKS_APART_SECONDS = 60.0
_EMPTY_RATIO = 0.05  # of a window, before its data begins: less is a first scrape that is due


@dataclass(frozen=True, slots=True)
class Plan:
    """``scrape_seconds`` is the configured interval, None when no source knows it."""

    window: Window
    grid: Grid
    scrape_seconds: float | None


def planned(sources: Sequence[Source], question: Question, window: Window | None = None) -> Plan:
    """``window`` (else the one asked for, else the sources' own extent, else the last hour) and its grid.

    The step is the scrape interval, or a multiple of it that keeps the grid under about 1,000
    points; times are multiples of the step. The look-back holds four scrapes, two steps and 10 s.
    """
    window = window or chosen_window(sources, question)
    known = [found for source in sources if (found := source.scrape_seconds(window))]
    scrape = nominal_seconds(min(known)) if known else None
    base = scrape or _FALLBACK_SCRAPE_SECONDS
    step = base * max(1, math.ceil(round(window.seconds / _GRID_POINTS / base, 6)))
    look_back = max(4.0 * base, 2.0 * step, _LEAST_LOOK_BACK_SECONDS)
    start = math.ceil(round(window.start / step, 6)) * step
    end = max(start, math.floor(round(window.end / step, 6)) * step)
    return Plan(window, Grid(start, end, step, look_back), scrape)


def chosen_window(sources: Sequence[Source], question: Question) -> Window:
    """The window to look at. ``UsageError`` when it is empty, or in a live store's future."""
    window = question.window or _own_window(sources, question.now)
    if window.seconds <= 0:
        raise UsageError(
            f"the window from {rfc3339(window.start)} to {rfc3339(window.end)} is empty",
            hint="its end must come later",
        )
    live = any(source.extent() is None for source in sources)
    if live and window.start > question.now + _CLOCKS_APART_SECONDS:
        raise UsageError(
            f"the window starts in the future ({rfc3339(window.start)}; it is {rfc3339(question.now)})",
            hint="check the date and the zone of --from",
        )
    return window


def without_emptiness(
    window: Window, sources: Sequence[Source], question: Question, first_request: float | None
) -> Window:
    """``window`` from where its data begins: what is empty is not a quiet time, and a grid stretched over it
    is too coarse for the rest. ``first_request``: time of the first record, None without any.

    An end without data stays: that engines fell silent may be the incident."""
    marked = [one.start for one in (question.baseline, question.incident) if one is not None]
    first = [one for source in sources if (one := source.begins(window, question.matchers)) is not None]
    first += [] if first_request is None else [first_request]
    start = min([*first, *marked], default=window.start)
    if start - window.start <= _EMPTY_RATIO * window.seconds or start >= window.end:
        return window
    return Window(start, window.end)


def _own_window(sources: Sequence[Source], now: float) -> Window:
    stored = [one for source in sources if source.ref.kind != "scrape" and (one := source.extent())]
    watched = [one for source in sources if source.ref.kind == "scrape" and (one := source.extent())]
    if stored:
        return Window(min(one.start for one in stored), max(one.end for one in stored))
    if watched and all(source.extent() is not None for source in sources):
        return Window(min(one.start for one in watched), max(one.end for one in watched))
    return Window(now - _LIVE_SECONDS, now)
