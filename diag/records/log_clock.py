"""When a log line was written. Engines write no year and no zone, kernels sometimes neither.

The year comes from the window that is asked about. The zone is taken as UTC unless that puts
nothing into the window and exactly one other offset fits well.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from diag.model import Window

__all__ = ["Clock", "Stamp", "find_offset"]

DAY_SECONDS = 86400.0
_MONTHS = {
    "Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6,
    "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10, "Nov": 11, "Dec": 12,
}  # fmt: skip
_FULL = re.compile(
    r"\[?(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d(?!\d))?"
)
_SYSLOG = re.compile(
    r"\[?(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)?(?: (\d{4}))?"
)
# glog, as Mooncake and other C++ parts write: level, month and day, microseconds, thread, place.
_GLOG = re.compile(r"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.\d+ +\d+ \S+:\d+\]")
_CLOCK_ONLY = re.compile(r"\s*(\d\d):(\d\d):(\d\d)(?:[.,]\d+)?\s")

# Offsets from UTC in use, in half hours; +5:45 and the like are left to people.
_OFFSETS_SECONDS = tuple(
    sorted(
        {3600.0 * hours for hours in range(-12, 15)}
        | {1800.0 * halves for halves in (-19, -7, 7, 9, 11, 13, 19, 21)},
        key=abs,
    )
)
_COVERAGE_MIN = 0.5
_END_TOLERANCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Stamp:
    """A line's time in unix seconds; ``zoned`` when the zone stood beside it."""

    time: float
    zoned: bool


@dataclass(slots=True)
class Clock:
    """Turns the parts of a time into a ``Stamp``, with the year from ``window``.

    ``offset_seconds`` is what the writer's clock was ahead of UTC, for times without a zone.
    """

    window: Window
    offset_seconds: float = 0.0
    _midnights: dict[tuple[int, int], float | None] = field(default_factory=dict)

    def yearless(self, month: int, day: int, hour: int, minute: int, second: int) -> Stamp | None:
        """A time without a year: the year that puts it nearest to the window. None if impossible."""
        key = (month, day)
        if key not in self._midnights:
            self._midnights[key] = self._midnight(month, day)
        midnight = self._midnights[key]
        if midnight is None or hour > 23 or minute > 59 or second > 60:
            return None
        return Stamp(midnight + hour * 3600 + minute * 60 + second - self.offset_seconds, False)

    def _midnight(self, month: int, day: int) -> float | None:
        middle = (self.window.start + self.window.end) / 2
        year = datetime.fromtimestamp(middle, UTC).year
        found: list[float] = []
        for candidate in (year - 1, year, year + 1):
            try:
                found.append(datetime(candidate, month, day, tzinfo=UTC).timestamp())
            except ValueError:
                continue
        return min(found, key=lambda time: abs(time - middle), default=None)

    def leading(self, text: str) -> Stamp | None:
        """The time at the very start of ``text``, in any of the shapes that logs use."""
        if match := _FULL.match(text):
            return self.full(match)
        if (match := _SYSLOG.match(text)) and match[1] in _MONTHS:
            return self._syslog(match)
        if match := _GLOG.match(text):
            month, day, hour, minute, second = (int(part) for part in match.groups())
            return self.yearless(month, day, hour, minute, second)
        if match := _CLOCK_ONLY.match(text):
            return self._clock_only(int(match[1]), int(match[2]), int(match[3]))
        return None

    def full(self, match: re.Match[str]) -> Stamp | None:
        """A date with its year; the zone decides whether the offset applies."""
        year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
        try:
            time = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
        except ValueError:
            return None
        time += float(f"0.{match[7]}") if match[7] else 0.0
        zone = match[8]
        return Stamp(time - _zone_seconds(zone), True) if zone else Stamp(time - self.offset_seconds, False)

    def _syslog(self, match: re.Match[str]) -> Stamp | None:
        month, day = _MONTHS[match[1]], int(match[2])
        hour, minute, second = int(match[3]), int(match[4]), int(match[5])
        if match[6] is None:
            return self.yearless(month, day, hour, minute, second)
        try:
            datetime(int(match[6]), month, day, tzinfo=UTC)
        except ValueError:
            return None
        seconds = float(timegm((int(match[6]), month, day, hour, minute, second, 0, 1, 0)))
        return Stamp(seconds - self.offset_seconds, False)

    def _clock_only(self, hour: int, minute: int, second: int) -> Stamp | None:
        if hour > 23 or minute > 59 or second > 60:
            return None
        middle = (self.window.start + self.window.end) / 2
        time = middle - middle % DAY_SECONDS + hour * 3600 + minute * 60 + second - self.offset_seconds
        return Stamp(
            min((time - DAY_SECONDS, time, time + DAY_SECONDS), key=lambda at: abs(at - middle)), False
        )


def _zone_seconds(zone: str) -> float:
    if zone == "Z":
        return 0.0
    sign = -1.0 if zone[0] == "-" else 1.0
    return sign * (int(zone[1:3]) * 3600.0 + int(zone[-2:]) * 60.0)


def find_offset(times: Sequence[float], window: Window) -> tuple[float, str]:
    """How far ahead of UTC the clock behind zoneless ``times`` ran, and a note ("" when it is UTC).

    An offset is believed only when UTC puts nothing into ``window``, the shifted times cover at least
    half of it, and no other offset does as well; of several the one is taken whose last line falls
    within five minutes of the window's end (a log copied when the incident was looked at).
    """
    stamps = np.asarray(times, dtype=np.float64)
    if stamps.size == 0 or _covered(stamps, window) > 0.0 or np.any(_inside(stamps, window)):
        return 0.0, ""
    fitting = [offset for offset in _OFFSETS_SECONDS if _covered(stamps - offset, window) >= _COVERAGE_MIN]
    if len(fitting) > 1:
        last = stamps.max()
        fitting = [offset for offset in fitting if abs(last - offset - window.end) <= _END_TOLERANCE_SECONDS]
    if len(fitting) == 1:
        sign, seconds = ("+" if fitting[0] >= 0 else "-"), abs(fitting[0])
        name = f"UTC{sign}{int(seconds // 3600):02d}:{int(seconds % 3600 // 60):02d}"
        return fitting[0], f"its times carry no zone and fit the window only as {name}: read as {name}"
    near = bool(np.any(np.abs(stamps - (window.start + window.end) / 2) <= DAY_SECONDS))
    return 0.0, "its times, read as UTC, lie outside the window" + (" (within a day of it)" if near else "")


def _inside(stamps: np.ndarray, window: Window) -> np.ndarray:
    inside: np.ndarray = (stamps >= window.start) & (stamps <= window.end)
    return inside


def _covered(stamps: np.ndarray, window: Window) -> float:
    """The share of the window between its first and last stamp."""
    held = stamps[_inside(stamps, window)]
    if held.size < 2:
        return 0.0
    return float(held.max() - held.min()) / max(window.seconds, 1.0)
