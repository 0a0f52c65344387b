"""Profiles as plain calls: one that never changes costs nothing to read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from diag.simulate.profiles import Profile

__all__ = ["integrate", "reader", "stepped"]


def reader(profile: Profile) -> Callable[[float], float]:
    """``profile.at``, or its only value."""
    if not profile.still:
        return profile.at
    value = profile.values[0]
    return lambda _time: value


def stepped(first: float, steps: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """``first`` until the first (time, value) of ``steps``, then the latest one's value."""
    if not steps:
        return lambda _time: first
    times, values = [time for time, _ in steps], [first, *(value for _, value in steps)]
    return lambda time: values[bisect_right(times, time)]


def integrate(rate: Callable[[float], float], start: float, end: float) -> float:
    """The area under ``rate`` over a short span, from its middle."""
    return rate(0.5 * (start + end)) * (end - start)
