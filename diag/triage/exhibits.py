"""The curves and the costs that a report shows: chosen by the same view that was judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from diag.detectors.findings import fleet_series
from diag.detectors.service import matched_ratio
from diag.detectors.view import View
from diag.detectors.workload import Workload, columns_of
from diag.errors import TooFewPoints
from diag.exhibits import Curve, Exhibit, Mark, Panel
from diag.model import Floats, Series
from diag.quantities import change, quantity
from diag.records.cohorts import Flags, Requests
from diag.signals import SIGNALS
from diag.stats.robust import theil_sen
from diag.triage.chain import WORDS
from diag.triage.rank import Judged

__all__ = ["exhibits_of"]

_POINTS = 240  # more are not seen on paper
_DOTS = 200
_PANELS = 5
_A_BIN = 6  # requests
_BINS = (12, 60)
_FEWEST = 15  # requests on either side, for a fit
_CURVE = 24
_MARKED = 6
_SAME = (0.67, 1.5)  # a ratio of first tokens that is no difference to the eye
_FULL = 0.9
_SYMPTOM = "ttft_seconds_p95"


def exhibits_of(view: View, lead: Judged | None) -> tuple[Exhibit, ...]:
    """Those that the case can show; empty on a healthy window."""
    if not view.symptomatic:
        return ()
    found = (_chain(view, lead), _lengths(view), _cohorts(view), _memory(view))
    return tuple(one for one in found if one is not None)


def _chain(view: View, lead: Judged | None) -> Exhibit | None:
    """Symptom and drivers on one axis of time."""
    names = [view.episodes[0].course.signal if view.episodes[0].course.signal in SIGNALS else _SYMPTOM]
    if lead is not None:
        names += [n for n in lead.hypothesis.card.chain if n not in names]
    found = (_panel(view, name) for name in dict.fromkeys(names))
    # One quantity may be measured twice: what the engine's own clock has goes on one axis with the rest.
    panels = list({p.title: p for p in found if p is not None}.values())[:_PANELS]
    if not panels:
        return None
    return Exhibit(
        "chain",
        "Symptom and driver on one axis of time",
        "Top: what users feel; below: what the leading cause says must have moved, in causal order."
        if len(panels) > 1
        else "What users feel.",
        "time",
        tuple(panels),
        tuple(_marks(view, lead)),
    )


def _panel(view: View, name: str) -> Panel | None:
    """A signal of the affected engines (of all where none stands out), or of the request records."""
    merged = fleet_series(view.case, name, view.affected or None) or fleet_series(view.case, name)
    curve = _curve(merged) if merged is not None else _recorded(view, name)
    if curve is None or not any(v is not None for v in curve.y):
        return None
    words = WORDS.get(name, SIGNALS[name].meaning.split(",")[0].split(";")[0])
    return Panel(words, SIGNALS[name].unit, (curve,))


def _curve(series: Series, label: str = "") -> Curve | None:
    seen = np.isfinite(series.values)
    if seen.sum() < 2:
        return None
    block = -(-len(series.values) // _POINTS)
    times, values = _thinned(series.times, series.values, block)
    return Curve(label, tuple(times.tolist()), tuple(_plain(values)))


def _thinned(times: Floats, values: Floats, block: int) -> tuple[Floats, Floats]:
    """Means of ``block`` neighbours; NaN where none was measured."""
    if block <= 1:
        return times, values
    starts = range(0, len(values), block)
    kept = [values[i : i + block][np.isfinite(values[i : i + block])] for i in starts]
    means = np.array([part.mean() if len(part) else np.nan for part in kept])
    return np.array([times[i : i + block].mean() for i in starts]), means


def _plain(values: Floats) -> Iterator[float | None]:
    return (float(f"{v:.5g}") if np.isfinite(v) else None for v in values)


def _recorded(view: View, name: str) -> Curve | None:
    """The course of a per-request quantity."""
    if view.workload is None:
        return None
    r = view.workload.requests
    column = columns_of(r).get(name)
    if column is None:
        return None
    return _binned(view, r.ts, column, np.ones(len(r), dtype=bool), None)


def _binned(
    view: View, ts: Floats, values: Floats, chosen: Flags, quantile: float | None, label: str = ""
) -> Curve | None:
    window = view.case.window
    keep = chosen & np.isfinite(values)
    count = int(np.clip(keep.sum() // _A_BIN, _BINS[0], _BINS[1]))
    edges = np.linspace(window.start, window.end, count + 1)
    place = np.clip(np.searchsorted(edges, ts, side="right") - 1, 0, count - 1)
    out = np.full(count, np.nan)
    for b in range(count):
        inside = values[keep & (place == b)]
        if len(inside):
            out[b] = np.mean(inside) if quantile is None else np.quantile(inside, quantile)
    if np.isfinite(out).sum() < 2:
        return None
    centres = (edges[:-1] + edges[1:]) / 2
    return Curve(label, tuple(centres.tolist()), tuple(_plain(out)))


def _marks(view: View, lead: Judged | None) -> Iterator[Mark]:
    yield Mark(view.onset, "onset", "users feel it")
    if lead is not None:
        own = [e.onset for e in lead.evidence if e.onset is not None and e.weight > 0]
        first = min(own, default=None)
        if first is not None and first < view.onset - 2 * view.case.step_seconds:
            yield Mark(first, "onset", "the driver moves")
    told = [e for e in view.case.events if e.marked and view.case.window.contains(e.time)]
    for event in sorted(told, key=lambda e: abs(e.time - view.onset))[:_MARKED]:
        yield Mark(event.time, "event", f"{event.kind}: {event.text}"[:80])


def _lengths(view: View) -> Exhibit | None:
    """First token against prompt length, with both fitted curves: did the curve move, or the lengths?"""
    if view.workload is None:
        return None
    r, work = view.workload.requests, view.workload
    curves: list[Curve] = []
    for name, flags in (("before", work.baseline), ("during", work.incident)):
        curves += _fitted(r, flags, name)
    if not any(not c.points for c in curves):
        return None
    caption = f"Each dot is a request. {_compared(work)}; {_lengthened(work)}."
    panel = Panel("time to first token by prompt length", "seconds", tuple(curves), log=True)
    return Exhibit("lengths", "First token against prompt length", caption, "tokens", (panel,))


def _compared(work: Workload) -> str:
    """Whether the curve moved."""
    r = work.requests
    ratio = matched_ratio(r, work.baseline, work.incident, r.ttft)
    if ratio is None:
        return "No length is common to both times"
    if _SAME[0] <= ratio <= _SAME[1]:
        return "At equal length first tokens take about as long as before"
    if ratio < 1:
        return f"At equal length first tokens come in {quantity(ratio, 'ratio')} of the time before"
    return f"At equal length first tokens take {ratio:.3g} times as long as before"


def _lengthened(work: Workload) -> str:
    """Whether the lengths did."""
    prompt = work.requests.prompt
    known = (prompt[w & np.isfinite(prompt)] for w in (work.baseline, work.incident))
    before, during = (float(np.quantile(values, 0.95)) if len(values) else np.nan for values in known)
    return f"long prompts (95th percentile) {change(before, during, 'tokens')}"


def _fitted(r: Requests, flags: Flags, name: str) -> Iterator[Curve]:
    keep = flags & np.isfinite(r.ttft) & (r.ttft > 0) & (r.prompt > 0)
    tokens, seconds = r.prompt[keep], r.ttft[keep]
    if len(tokens) < _FEWEST:
        return
    some = np.unique(np.linspace(0, len(tokens) - 1, _DOTS).round().astype(int))
    yield Curve(name, tuple(tokens[some].tolist()), tuple(_plain(seconds[some])), points=True)
    try:
        slope, offset = theil_sen(np.log(tokens), np.log(seconds))
    except TooFewPoints:
        return
    x = np.geomspace(float(tokens.min()), float(tokens.max()), _CURVE)
    if x[-1] > 1.2 * x[0]:
        y = np.exp(offset + slope * np.log(x))
        yield Curve(f"{name}, fitted (exponent {slope:.2f})", tuple(x.tolist()), tuple(_plain(y)))


def _cohorts(view: View) -> Exhibit | None:
    """Sessions that grew against all others, over time."""
    work = view.workload
    if work is None or work.growth is None or not work.growth.sessions:
        return None
    if work.findings["session_growth_ratio"].effect < 1:
        return None
    r = work.requests
    old = np.isin(r.session, work.growth.codes)
    named = (("sessions that grew", old), ("all others", ~old))
    curves = [_binned(view, r.ts, r.waited, chosen, 0.95, label) for label, chosen in named]
    kept = tuple(c for c in curves if c is not None)
    if len(kept) < 2:
        return None
    panel = Panel("time to first token, 95th percentile", "seconds", kept)
    caption = "Old sessions against fresh ones: who is hit, and who serves as the control."
    return Exhibit("cohorts", "Old sessions against the others", caption, "time", (panel,), _onset(view))


def _memory(view: View) -> Exhibit | None:
    """The fullest KV pool and preemptions, where either was in trouble."""
    full, preempted = (view.finding(n) for n in ("kv_cache_usage_ratio", "preemptions_per_second"))
    if not ((full is not None and full.peak >= _FULL) or (preempted is not None and preempted.effect >= 1)):
        return None
    panels = _known(_panel(view, n) for n in ("kv_cache_usage_ratio", "preemptions_per_second"))
    if len(panels) < 2:
        return None
    caption = "A full pool preempts: what was computed is thrown away and computed again."
    return Exhibit("memory", "KV cache and preemptions", caption, "time", panels, _onset(view))


def _known(panels: Iterable[Panel | None]) -> tuple[Panel, ...]:
    return tuple(p for p in panels if p is not None)


def _onset(view: View) -> tuple[Mark, ...]:
    return (Mark(view.onset, "onset", "users feel it"),)
