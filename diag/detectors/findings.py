"""Series -> findings: how a signal stood before and during, since when, and what is excluded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from diag.model import Case, Finding, Floats, Series, Window
from diag.signals import SIGNALS, Signal
from diag.stats.changepoint import dominant_step, exceedance_onset
from diag.stats.robust import mad_sigma, pair_slopes, weighted_mean
from diag.stats.shift import block_means, shift

__all__ = ["Spans", "fleet_series", "judge_series", "judge_values", "onset_of", "weight_signal"]

_SIGMAS = 2.5  # a shift below 2.5 robust deviations of baseline blocks is wandering, not moving
_MOST_BLOCKS = 200  # more say no more, and slopes between all of them cost their square
_FEWEST = 5  # points on either side, below which not even extremes say anything
_MAX_OF = frozenset({"kv_cache_usage_ratio", "running_requests_max", "engine_start_time_seconds"})
_MEAN_WEIGHT = "first_tokens_per_second"
_FINISHED_WEIGHT = "finished_requests_per_second"
_WEIGHTS: Mapping[str, str] = {
    "ttft_seconds_mean": _MEAN_WEIGHT,
    "inter_token_seconds_mean": "generation_tokens_per_second",
    "e2e_seconds_mean": _FINISHED_WEIGHT,
    "queue_seconds_mean": _FINISHED_WEIGHT,
    "prefill_seconds_mean": _FINISHED_WEIGHT,
    "decode_seconds_mean": _FINISHED_WEIGHT,
    "prompt_tokens_per_request_mean": _FINISHED_WEIGHT,
    "computed_tokens_per_request_mean": _FINISHED_WEIGHT,
    "output_tokens_per_request_mean": _FINISHED_WEIGHT,
    "prefix_cache_hit_ratio": "prefix_cache_query_tokens_per_second",
    "step_tokens_mean": "steps_per_second",
}


@dataclass(frozen=True, slots=True)
class Spans:
    """The two stretches that are compared, and the grid they are seen on.

    ``look_back_seconds`` of every grid point reach into the past, so the first that many seconds of
    the incident still hold baseline samples and are left out where the incident is long enough."""

    baseline: Window
    incident: Window
    step_seconds: float
    look_back_seconds: float

    @property
    def settled(self) -> Window:
        """The incident without the stretch in which look-back windows straddle the onset."""
        start = self.incident.start + self.look_back_seconds
        if start < self.incident.end - 2 * self.look_back_seconds:
            return Window(start, self.incident.end)
        return self.incident

    @property
    def overlap_points(self) -> int:
        """Over how many neighbouring grid points look-back windows overlap."""
        return max(1, round(self.look_back_seconds / self.step_seconds))


def weight_signal(name: str) -> str | None:
    """The rate by which a per-request mean must be weighted over time, if ``name`` is one."""
    return _WEIGHTS.get(name)


def fleet_series(case: Case, name: str, instances: Iterable[str] | None = None) -> Series | None:
    """One series for several engine instances: rates and counts add up, means are weighted by the
    requests behind them, usage takes the fullest. None when nothing is there."""
    chosen = None if instances is None else frozenset(instances)
    parts = [s for s in case.of(name) if chosen is None or s.labels.get("instance", "") in chosen]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    values = np.vstack([part.values for part in parts])
    return Series(name, {}, parts[0].times, _combine(case, name, parts, values), parts[0].producer)


def _combine(case: Case, name: str, parts: list[Series], values: Floats) -> Floats:
    seen = np.isfinite(values)
    none = ~seen.any(axis=0)
    if name in _MAX_OF:
        filled = np.where(seen, values, -np.inf).max(axis=0)
    elif name in _WEIGHTS:
        weights = np.vstack([_weights_for(case, name, part) for part in parts])
        weights = np.where(seen & np.isfinite(weights), weights, 0.0)
        total = weights.sum(axis=0)
        none = none | (total <= 0)
        filled = np.where(seen, values * weights, 0.0).sum(axis=0) / np.where(total > 0, total, 1.0)
    elif SIGNALS[name].unit in ("per second", "tokens per second", "requests", "tokens", "bytes"):
        filled = np.where(seen, values, 0.0).sum(axis=0)
    else:
        filled = np.where(seen, values, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    result: Floats = np.where(none, np.nan, filled)
    return result


def _weights_for(case: Case, name: str, series: Series) -> Floats:
    for candidate in case.of(_WEIGHTS[name]):
        if candidate.labels.get("instance") == series.labels.get("instance"):
            return candidate.values
    return np.ones_like(series.values)


def judge_series(series: Series, spans: Spans, weights: Floats | None = None) -> Finding | None:
    """Compare a series' two stretches; None when either holds no value.

    ``weights``: on the same grid; the means before and during are weighted by it."""
    base = (series.times >= spans.baseline.start) & (series.times <= spans.baseline.end)
    settled = spans.settled
    inc = (series.times >= settled.start) & (series.times <= settled.end)
    w = np.ones_like(series.values) if weights is None else np.where(np.isfinite(weights), weights, 0.0)
    found = judge_values(
        SIGNALS[series.signal], series.values[base], series.values[inc],
        labels=series.labels, min_block=spans.overlap_points, weights=(w[base], w[inc]),
    )  # fmt: skip
    if found is None:
        return None
    onset = _onset(series, SIGNALS[series.signal], spans, found)
    return replace(found, onset=onset)


def judge_values(
    signal: Signal,
    baseline: Floats,
    incident: Floats,
    *,
    labels: Mapping[str, str] | None = None,
    min_block: int = 1,
    weights: tuple[Floats, Floats] | None = None,
) -> Finding | None:
    """Compare two arrays in time order (grid values or per-request values); no onset.

    Effects and bounds are in the signal's floors: a natural-log ratio for relative signals, a
    difference otherwise, and never more than the shift in 2.5 deviations of baseline blocks."""
    if not np.isfinite(baseline).any() or not np.isfinite(incident).any():
        return None
    w_base, w_inc = weights if weights is not None else (np.ones_like(baseline), np.ones_like(incident))
    before, during = _mean(baseline, w_base), _mean(incident, w_inc)
    if not (np.isfinite(before) and np.isfinite(during)):
        return None
    block = max(1, min_block)
    x, y = _blocks(baseline, block, signal), _blocks(incident, block, signal)
    if signal.relative:
        moved = float(np.log(max(during, 1e-12) / max(before, 1e-12))) if before > 0 or during > 0 else 0.0
        # From or to nothing is a real move, but its logarithm has no size: cap at e⁴ ≈ 55-fold.
        moved = float(np.clip(moved, -4.0, 4.0))
    else:
        moved = during - before
    sigma = _wander(x)
    effect = moved / signal.floor
    if sigma > 0:
        effect = float(np.sign(moved) * min(abs(effect), abs(moved) / (_SIGMAS * sigma)))
    low, high = _bounds(x, y, signal.floor)
    if low is None or high is None:
        low, high = _extremes(signal, baseline, incident)
    present = float(np.isfinite(incident).mean())
    return Finding(
        signal.name, labels or {}, signal.unit, before, during, effect, low, high, None, present,
        _peak(incident, before),
    )  # fmt: skip


def _mean(x: Floats, w: Floats) -> float:
    mean = weighted_mean(x, w)
    if np.isfinite(mean):
        return mean
    return float(np.nanmean(x)) if np.isfinite(x).any() else float("nan")


def _log(x: Floats) -> Floats:
    logs: Floats = np.log(np.where(x > 1e-12, x, np.nan))
    return logs


def _blocks(x: Floats, block: int, signal: Signal) -> Floats:
    """Means of blocks that share no samples; of their logarithms' arguments, not of logarithms: a few
    long prompts are the news, not an outlier. Empty blocks of a rate count as a tenth of its mean."""
    wide = max(block, min(20 * block, len(x) // 12), len(x) // _MOST_BLOCKS, 1)
    means = block_means(x, wide)
    if not signal.relative:
        return means
    centre = float(means[means > 0].mean()) if (means > 0).any() else 1.0
    logs: Floats = np.log(np.maximum(means, 0.1 * centre))
    return logs


def _wander(blocks: Floats) -> float:
    """Robust deviation of baseline blocks: how far the quiet series strays by itself.

    A steady climb is not straying (a session that grows from the first minute on must not hide its
    own growth), so the blocks are taken around their own trend."""
    return mad_sigma(_detrended(blocks)) if len(blocks) >= 4 else 0.0


def _detrended(x: Floats) -> Floats:
    places = np.arange(len(x), dtype=np.float64)
    slopes = pair_slopes(places, x)
    straight: Floats = x - np.median(slopes) * places
    return straight


def _bounds(x: Floats, y: Floats, floor: float) -> tuple[float | None, float | None]:
    found = shift(x, y)
    return (None, None) if found is None else (found.low / floor, found.high / floor)


def _extremes(signal: Signal, baseline: Floats, incident: Floats) -> tuple[float | None, float | None]:
    """Bounds that need no block: no shift of means exceeds the distance of the farthest points.

    Wide for anything noisy; narrow for a clock that never moved or a flag that was never set."""
    a, b = baseline[np.isfinite(baseline)], incident[np.isfinite(incident)]
    if len(a) < _FEWEST or len(b) < _FEWEST:
        return None, None
    if signal.relative:
        if min(a.min(), b.min()) <= 0:
            return None, None
        a, b = np.log(a), np.log(b)
    return float(b.min() - a.max()) / signal.floor, float(b.max() - a.min()) / signal.floor


def _peak(incident: Floats, before: float) -> float:
    finite = incident[np.isfinite(incident)]
    return float(finite[np.argmax(np.abs(finite - before))])


def _onset(series: Series, signal: Signal, spans: Spans, found: Finding) -> float | None:
    inside = (series.times >= spans.baseline.start) & (series.times <= spans.incident.end)
    times, values = series.times[inside], series.values[inside]
    return onset_of(signal, times, values, spans.baseline, found, spans.overlap_points)


def onset_of(
    signal: Signal, times: Floats, values: Floats, baseline: Window, found: Finding, overlap: int
) -> float | None:
    """First lasting departure in the direction of the effect; None when there is none.

    Quiet is the first half of the baseline: a cause may precede the symptom by long, and one that
    climbs all the while is told by where it came from. Gone is whoever has come a quarter of the way:
    of two that climb together the one that leads is then named first."""
    effect = found.effect
    if abs(effect) < 0.5:
        return None
    x = _log(values) if signal.relative else values
    quiet = x[(times <= baseline.start + baseline.seconds / 2) & np.isfinite(x)]
    if len(quiet) < 3:
        return None
    centre = float(np.median(quiet))
    ends = np.array([found.before, found.during])
    way = np.abs(np.diff(_log(ends) if signal.relative else ends))[0]
    reach = max(0.5 * signal.floor, 2.5 * mad_sigma(quiet), 0.25 * way if np.isfinite(way) else 0.0)
    filled = np.where(np.isfinite(x), x, centre)
    bad = filled > centre + reach if effect > 0 else filled < centre - reach
    step = dominant_step(filled if effect > 0 else -filled)
    settled = step.at if step is not None else 0
    at = exceedance_onset(bad, need=max(3, round(1.6 * overlap)), of=max(6, 3 * overlap), settled=settled)
    return float(times[at]) if at is not None else None
