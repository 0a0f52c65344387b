"""Range functions of Prometheus 2.42 on one series, for all times of a grid at once.

``Spans`` says which samples each window holds; the functions turn them into one value per grid
time. Where a function has no value the result is NaN and the mask is False. Source of the rules:
``extrapolatedRate`` and the ``*_over_time`` functions in Prometheus' promql/functions.go, 2.42.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Column", "Spans", "increase", "over_time", "spans"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One value per grid time, shape (n,); ``present`` tells NaN the value from no value."""

    values: Floats
    present: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """For each grid time, in milliseconds: window start and end, and its samples ``[low, high)``."""

    starts: Integers
    ends: Integers
    low: NDArray[np.intp]
    high: NDArray[np.intp]


def spans(sample_times: Integers, grid_times: Integers, window_milliseconds: int) -> Spans:
    """The samples of each window ``[t - window, t]``, both ends included."""
    starts = grid_times - window_milliseconds
    low = np.searchsorted(sample_times, starts, side="left")
    high = np.searchsorted(sample_times, grid_times, side="right")
    return Spans(starts, grid_times, low, high)


def increase(times: Integers, values: Floats, span: Spans, *, per_second: bool) -> Column:
    """Growth of a counter over each window, resets undone, extrapolated towards the window's ends.

    Needs two samples. With ``per_second`` the result is divided by the window's length."""
    present = span.high - span.low >= 2
    result = np.full(present.shape, np.nan)
    if not present.any():
        return Column(result, present)
    first, last = span.low[present], span.high[present] - 1
    growth = values[last] - values[first] + _reset_losses(values, first, last)
    factor = _extrapolation(times, values, growth, first, last, span, present)
    if per_second:
        factor = factor / ((span.ends - span.starts)[present] / 1000.0)
    result[present] = growth * factor
    return Column(result, present)


def _reset_losses(values: Floats, first: NDArray[np.intp], last: NDArray[np.intp]) -> Floats:
    fell = values[1:] < values[:-1]
    if not fell.any():
        return np.zeros(first.shape)
    lost = np.concatenate(([0.0], np.cumsum(np.where(fell, values[:-1], 0.0))))
    return np.asarray(lost[last] - lost[first], dtype=np.float64)


def _extrapolation(
    times: Integers,
    values: Floats,
    growth: Floats,
    first: NDArray[np.intp],
    last: NDArray[np.intp],
    span: Spans,
    present: Mask,
) -> Floats:
    sampled = (times[last] - times[first]) / 1000.0
    between = sampled / (last - first)
    to_start = (times[first] - span.starts[present]) / 1000.0
    to_end = (span.ends[present] - times[last]) / 1000.0
    # A counter cannot have been negative: never extrapolate back past the point where it was zero.
    rising = (growth > 0) & (values[first] >= 0)
    to_zero = np.full(sampled.shape, np.inf)
    to_zero[rising] = sampled[rising] * (values[first][rising] / growth[rising])
    to_start = np.where(to_zero < to_start, to_zero, to_start)
    threshold = between * 1.1
    covered = sampled + np.where(to_start < threshold, to_start, between / 2)
    covered = covered + np.where(to_end < threshold, to_end, between / 2)
    return np.asarray(covered / sampled, dtype=np.float64)


def over_time(how: str, values: Floats, span: Spans) -> Column:
    """The ``last``, ``max``, ``min`` or ``avg`` sample of each window; needs one sample."""
    present = span.high > span.low
    result = np.full(present.shape, np.nan)
    if not present.any():
        return Column(result, present)
    if how == "last":
        result[present] = values[span.high[present] - 1]
        return Column(result, present)
    result[present] = _reduced(how, values, span.low[present], span.high[present])
    return Column(result, present)


def _reduced(how: str, values: Floats, low: NDArray[np.intp], high: NDArray[np.intp]) -> Floats:
    # reduceat takes pairs of bounds; the pad makes an end at len(values) a legal index.
    padded = np.append(values, values[-1])
    bounds = np.column_stack((low, high)).ravel()
    operation = {"max": np.maximum, "min": np.minimum, "avg": np.add}[how]
    reduced = operation.reduceat(padded, bounds)[::2]
    return np.asarray(reduced / (high - low) if how == "avg" else reduced, dtype=np.float64)
