"""How a quantity changes over the window: the one way in which scenarios say "from then on" and "slowly".

Times are seconds since the window's start. Between two points a profile is straight, outside them it
holds its first and last value; two points at one time make a step (the later one counts).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from diag.model import Floats

__all__ = ["Profile", "constant", "product", "pulses", "ramp", "spells", "step"]


@dataclass(frozen=True, slots=True)
class Profile:
    """Piecewise linear; ``times`` ascending, as many as ``values``, at least one."""

    times: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, time: float) -> float:
        """The value at ``time`` (seconds since the window's start)."""
        after = bisect_right(self.times, time)
        if after == 0:
            return self.values[0]
        if after == len(self.times):
            return self.values[-1]
        t0, t1 = self.times[after - 1], self.times[after]
        v0, v1 = self.values[after - 1], self.values[after]
        return v0 if t1 <= t0 else v0 + (v1 - v0) * (time - t0) / (t1 - t0)

    def before(self, time: float) -> float:
        """The value that ``time`` is approached with: at a step the earlier one."""
        after = bisect_left(self.times, time)
        stands_there = after < len(self.times) and self.times[after] == time
        return self.values[after] if stands_there else self.at(time)

    def over(self, times: Floats) -> Floats:
        """The values at ``times``, shape (n,)."""
        return np.array([self.at(float(time)) for time in times], dtype=np.float64)

    def scaled(self, factor: float) -> Profile:
        """Every value times ``factor``."""
        return Profile(self.times, tuple(value * factor for value in self.values))

    @property
    def still(self) -> bool:
        """Whether it never changes."""
        return min(self.values) == max(self.values)


def constant(value: float) -> Profile:
    """The same all the time."""
    return Profile((0.0,), (value,))


def step(at: float, before: float, after: float) -> Profile:
    """``before`` until ``at``, then ``after``."""
    return Profile((at, at), (before, after))


def ramp(start: float, end: float, before: float, after: float) -> Profile:
    """``before`` until ``start``, ``after`` from ``end`` on, straight between."""
    return Profile((start, end), (before, after))


def spells(intervals: Iterable[tuple[float, float]], resting: float, busy: float) -> Profile:
    """``busy`` inside the intervals (start, end), ascending and apart, ``resting`` outside them."""
    times: list[float] = [0.0]
    values: list[float] = [resting]
    for start, end in intervals:
        times += [start, start, end, end]
        values += [resting, busy, busy, resting]
    return Profile(tuple(times), tuple(values))


def pulses(marks: Iterable[float], seconds: float, resting: float, busy: float) -> Profile:
    """``busy`` for ``seconds`` after each mark."""
    return spells(((mark, mark + seconds) for mark in marks), resting, busy)


def product(one: Profile, other: Profile) -> Profile:
    """One times the other at each of their points; straight between them, as every profile is."""
    times: list[float] = []
    values: list[float] = []
    for time in sorted({*one.times, *other.times}):
        left, right = one.before(time) * other.before(time), one.at(time) * other.at(time)
        times.append(time)
        values.append(left)
        if right != left:
            times.append(time)
            values.append(right)
    return Profile(tuple(times), tuple(values))
