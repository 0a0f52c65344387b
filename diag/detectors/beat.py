"""Whether the signs of life of an engine come in a beat: work, silence, work, silence.

Halts of a process are often shorter than chance leaves between two first tokens of a quiet service, so
that no single one is proven. Many at even intervals are: the counts of signs then agree with themselves
one period later, and disagree half a period later. Slow swings of load have no such trough, and the
same gaps in another order (the placebo) have neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.model import Floats

__all__ = ["LIKELY", "WORTH", "Beat", "beat_of", "depth_at"]

WORTH = 0.10
"""A depth from which on a beat shapes the service, and is not only there."""

LIKELY = 0.01
"""Odds up to which a beat is taken for one: several engines are listened to."""

_BIN_SECONDS = 1.0
_SHORTEST, _LONGEST = 8.0, 180.0  # seconds
_PERIODS = 8  # fewer repeats of a period are no beat
_FEWEST = 60  # signs
_SHUFFLES = 199
_WIDTH = 0.07  # of a lag: intervals are even, not equal


@dataclass(frozen=True, slots=True)
class Beat:
    """``depth``: how far the counts agree one period later beyond half periods, a correlation; ``odds``: how
    often the same gaps in another order agree as well somewhere."""

    period_seconds: float
    depth: float
    odds: float


def beat_of(signs: Floats) -> Beat | None:
    """Look for one period in ascending times (seconds); None below sixty, or in too short a stretch."""
    if len(signs) < _FEWEST:
        return None
    span = float(signs[-1] - signs[0])
    lags = np.arange(_SHORTEST, min(_LONGEST, span / _PERIODS), _BIN_SECONDS)
    if len(lags) < 4:
        return None
    gaps = np.diff(signs)
    period, depth = _deepest(signs - signs[0], lags)
    if depth < 0.7 * WORTH:  # too shallow to be of interest, whatever its odds
        return Beat(period, depth, 1.0)
    rng = np.random.default_rng(len(gaps))
    chance = [
        _deepest(np.concatenate([[0.0], np.cumsum(rng.permutation(gaps))]), lags)[1] for _ in range(_SHUFFLES)
    ]
    odds = (1 + sum(other >= depth for other in chance)) / (1 + _SHUFFLES)
    return Beat(period, depth, odds)


def depth_at(times: Floats, weights: Floats, period_seconds: float) -> float:
    """How far ``times`` (ascending, each counted ``weights`` times) agree with themselves a period later."""
    if len(times) < 2:
        return 0.0
    place = ((times - times[0]) / _BIN_SECONDS).astype(np.int64)
    own = _agreement(np.bincount(place, weights=weights).astype(np.float64))
    lags = period_seconds + _BIN_SECONDS * np.arange(-1.0, 2.0)
    if 1.5 * lags[-1] * (1 + _WIDTH) >= len(own):
        return 0.0
    return float(np.max(_near(own, lags) - 0.5 * (_near(own, lags / 2) + _near(own, 1.5 * lags))))


def _deepest(since: Floats, lags: Floats) -> tuple[float, float]:
    counts = np.bincount((since / _BIN_SECONDS).astype(np.int64)).astype(np.float64)
    own = _agreement(counts)
    at = _near(own, lags) - 0.5 * (_near(own, lags / 2) + _near(own, 1.5 * lags))
    best = int(np.argmax(at))
    return float(lags[best]), float(at[best])


def _agreement(counts: Floats) -> Floats:
    """Correlation of the counts with themselves at each lag in bins; a single burst must not rule it."""
    calm = np.sqrt(counts)
    calm -= calm.mean()
    size = 2 * len(calm)
    power = np.abs(np.fft.rfft(calm, size)) ** 2
    found: Floats = np.fft.irfft(power, size)[: len(calm)]
    return found / found[0] if found[0] > 0 else found


def _near(own: Floats, lags: Floats) -> Floats:
    """Means over a neighbourhood of each lag."""
    low = np.rint(lags * (1 - _WIDTH) / _BIN_SECONDS).astype(np.int64)
    high = np.maximum(np.rint(lags * (1 + _WIDTH) / _BIN_SECONDS).astype(np.int64), low) + 1
    upto = np.concatenate([[0.0], np.cumsum(own)])
    high = np.minimum(high, len(own))
    low = np.minimum(low, high - 1)
    means: Floats = (upto[high] - upto[low]) / (high - low)
    return means
