"""Moments in which a process does nothing at all though work is under way, and whether they keep a beat.

Seen from request records: first tokens and ends come out of a working engine all the time; a stall is
a silence far longer than chance leaves between them. What is proven is only that nothing came out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.beat import LIKELY, WORTH, Beat, beat_of, depth_at
from diag.detectors.in_flight import under_way
from diag.detectors.view import View
from diag.errors import TooFewPoints
from diag.model import Floats, Window
from diag.records.cohorts import Flags, Requests
from diag.stats.robust import theil_sen

__all__ = ["Pauses", "pauses_of", "period_odds"]

_LEAST_SECONDS = 0.5
_FEWEST_EVENTS = 60
_CHANCE = 3.0  # e⁻³: odds that the longest of all silences is that long by chance
_SIMULATED = 500
_GIANT = 5.0
_FEWEST_GIANTS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Pauses:
    """Silences of one instance. ``times``/``seconds``: when each began and how long it lasted, shape (n,), in
    baseline and incident: what grows begins before it is felt. ``during``: how many in the incident;
    ``lost_before``/``lost_during``: share of the time; ``smallest_seconds``: shorter ones could not be told
    from chance; ``period_seconds`` and ``odds`` (chance that random moments are as regular), NaN with fewer
    than four; ``growth``: last over first, by the trend; ``share``: of the excess wait, by whom met one;
    ``beat``: of all signs of life in the incident, ``beat_before``: in the baseline; ``provoked``: how
    well the work that arrives keeps that beat itself, 0 … 1."""

    instance: str
    times: Floats
    seconds: Floats
    during: int
    lost_before: float
    lost_during: float
    smallest_seconds: float
    period_seconds: float
    odds: float
    growth: float
    share: float
    beat: Beat | None
    beat_before: Beat | None
    provoked: float


def pauses_of(view: View) -> Pauses | None:
    """The instance with the most silence; None without records, or with too few to tell."""
    if view.workload is None:
        return None
    requests = view.workload.requests
    groups = [(name, requests.instance == code) for code, name in enumerate(requests.instances)]
    hosts = {name.split(":")[0] for name in view.affected}
    slow = [pair for pair in groups if pair[0].split(":")[0] in hosts]
    found = [
        _pauses(view, requests, name, chosen) for name, chosen in slow or groups or [("", requests.ts > 0)]
    ]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: (_depth(one), float(one.seconds.sum()))) if known else None


def _depth(pauses: Pauses) -> float:
    """Proven beats first."""
    beat = pauses.beat
    return beat.depth if beat is not None and beat.odds <= LIKELY and beat.depth >= WORTH else 0.0


def _pauses(view: View, requests: Requests, name: str, chosen: Flags) -> Pauses | None:
    signs = _signs(requests, chosen)
    starts, lengths, busy = _silences(requests, chosen, signs)
    if busy < _FEWEST_EVENTS:
        return None
    limit = _limit(lengths)
    long = lengths >= limit
    quiet, felt = view.spans.baseline, view.spans.incident
    long &= _in(starts, Window(quiet.start, felt.end))
    times, seconds = starts[long], lengths[long]
    lost = [float(seconds[_in(times, span)].sum()) / max(span.seconds, 1.0) for span in (quiet, felt)]
    period, odds = period_odds(times)
    now = beat_of(signs[_in(signs, felt)])
    growth = _growing(times, seconds, now, *_windowed(starts, lengths, now, quiet.start, felt.end))
    return Pauses(
        name, times, seconds, int(_in(times, felt).sum()), lost[0], lost[1], limit, period, odds, growth,
        _share(view, requests, chosen, times, seconds),
        now, beat_of(signs[_in(signs, quiet)]), _provoked(requests, chosen, felt, now),
    )  # fmt: skip


def _signs(requests: Requests, chosen: Flags) -> Floats:
    """When first tokens and ends came, in order of time."""
    firsts = requests.ts[chosen] + requests.ttft[chosen]
    ends = requests.ts[chosen] + requests.duration[chosen]
    signs = np.sort(np.concatenate([firsts, ends]))
    found: Floats = signs[np.isfinite(signs)]
    return found


def _silences(requests: Requests, chosen: Flags, signs: Floats) -> tuple[Floats, Floats, int]:
    """Starts and lengths of the gaps between signs of life, while two or more requests were under way."""
    if len(signs) < 2:
        return np.empty(0), np.empty(0), 0
    starts, lengths = signs[:-1], np.diff(signs)
    busy = under_way(requests, starts + 1e-6, chosen) >= 2
    return starts[busy], lengths[busy], int(busy.sum())


def _limit(lengths: Floats) -> float:
    """Longer than the longest of as many exponential gaps with this median is by chance."""
    scale = max(float(np.median(lengths)), float(np.quantile(lengths, 0.8)) / 2.32) / np.log(2)
    return max(_LEAST_SECONDS, float(scale * (np.log(len(lengths)) + _CHANCE)))


def _in(times: Floats, window: Window) -> Flags:
    flags: Flags = (times >= window.start) & (times <= window.end)
    return flags


def period_odds(times: Floats) -> tuple[float, float]:
    """Mean interval, and how often as many random moments come at intervals as equal as these.

    The measure is the intervals' deviation over their mean; random moments have about one."""
    gaps = np.diff(times)
    if len(gaps) < 3 or gaps.mean() <= 0:
        return float("nan"), float("nan")
    rng = np.random.default_rng(len(gaps))
    drawn = rng.exponential(1.0, (_SIMULATED, len(gaps)))
    chance = drawn.std(axis=1) / drawn.mean(axis=1)
    uneven = float(gaps.std() / gaps.mean())
    return float(gaps.mean()), float(1 + (chance <= uneven).sum()) / (1 + _SIMULATED)


def _growing(times: Floats, seconds: Floats, beat: Beat | None, centres: Floats, longest: Floats) -> float:
    """Where a beat is heard, by the longest gap of every few periods; else by the silences that are proven:
    these alone are cut off from below."""
    heard = beat is not None and beat.odds <= LIKELY and beat.depth >= WORTH
    return _growth(centres, longest) if heard else _growth(times, seconds)


def _windowed(
    starts: Floats, lengths: Floats, beat: Beat | None, begin: float, end: float
) -> tuple[Floats, Floats]:
    """Centres of windows of three periods, and the longest gap in each."""
    if beat is None:
        return np.empty(0), np.empty(0)
    wide = 3 * beat.period_seconds
    place = np.floor((starts - begin) / wide).astype(np.int64)
    kept = (starts >= begin) & (starts <= end) & (lengths > 0)
    found = [
        (begin + (p + 0.5) * wide, float(lengths[kept & (place == p)].max())) for p in np.unique(place[kept])
    ]
    centres, longest = np.array([c for c, _ in found]), np.array([v for _, v in found])
    return centres, longest


def _growth(times: Floats, seconds: Floats) -> float:
    """Last over first by the trend of their logarithms; NaN with too few."""
    try:
        slope, _ = theil_sen(times, np.log(seconds))
    except TooFewPoints:
        return float("nan")
    return float(np.exp(slope * (times[-1] - times[0])))


def _provoked(requests: Requests, chosen: Flags, span: Window, beat: Beat | None) -> float:
    """How well the work that arrives keeps the beat itself: as deep as the signs of life do; or, for prompts
    of five times the usual work, their mean phase, where random arrivals do not have it (Rayleigh)."""
    work = requests.prompt - np.nan_to_num(requests.cached)
    known = chosen & np.isfinite(work)
    if beat is None or not known.any():
        return 0.0
    come = known & _in(requests.ts, span)
    depth = depth_at(requests.ts[come], np.maximum(work[come], 0.0), beat.period_seconds)
    asked = min(1.0, max(0.0, depth) / max(beat.depth, 1e-6))
    giant = known & (work >= _GIANT * max(float(np.median(work[known])), 1.0))
    arrived = requests.ts[giant & _in(requests.ts, span)]
    # The period is known to a bin: the neighbours of its length are tried too.
    periods = beat.period_seconds * np.linspace(0.93, 1.07, 29)
    locked = (
        max(float(abs(np.exp(2j * np.pi * arrived / one).mean())) for one in periods) if len(arrived) else 0.0
    )
    chance = len(periods) * np.exp(-len(arrived) * locked**2)
    return max(asked, locked if len(arrived) >= _FEWEST_GIANTS and chance < 0.05 else 0.0)


def _share(view: View, requests: Requests, chosen: Flags, times: Floats, seconds: Floats) -> float:
    """Of the seconds that answers took longer than before, those of requests that met a silence."""
    assert view.workload is not None
    work = view.workload
    usual = requests.duration[work.baseline & chosen]
    usual = usual[np.isfinite(usual)]
    if not len(usual) or not len(times):
        return 0.0
    inc = work.incident & np.isfinite(requests.duration)
    excess = np.where(inc, np.maximum(requests.duration - float(np.median(usual)), 0.0), 0.0)
    ends = requests.ts + np.nan_to_num(requests.duration)
    first = np.searchsorted(times, requests.ts - seconds.max(), side="left")
    last = np.searchsorted(times, ends, side="right")
    met = chosen & (last > first)
    return float(excess[met].sum() / excess.sum()) if excess.sum() > 0 else 0.0
