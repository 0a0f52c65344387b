"""Histograms that count, and the bounds they count by."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import repeat

from diag_exporter.families import Histogram

__all__ = [
    "AGE_BOUNDS",
    "LENGTH_BINS",
    "LENGTH_LIMITS",
    "RATIO_BOUNDS",
    "SECONDS_BOUNDS",
    "TOKEN_BOUNDS",
    "TURN_BOUNDS",
    "Buckets",
]

# Steps of about √2 where contexts live; quantiles then err by 2 % or so (exporters.md §8).
TOKEN_BOUNDS = (
    128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 6144.0, 8192.0, 12288.0, 16384.0, 24576.0, 32768.0,
    49152.0, 65536.0, 98304.0, 131072.0, 196608.0, 262144.0, 524288.0, 1048576.0,
)  # fmt: skip
SECONDS_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
AGE_BOUNDS = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0)
RATIO_BOUNDS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
TURN_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

LENGTH_LIMITS = (2048, 8192, 32768, 131072, 1 << 60)
LENGTH_BINS = ("0-2k", "2k-8k", "8k-32k", "32k-128k", "128k-", "unknown")
"""Bins of prompt tokens by ``bisect_left(LENGTH_LIMITS, tokens)``; the last one: tokens not known
(counted as more than the last limit)."""


class Buckets:
    """A histogram under construction; not locked, its owner is."""

    __slots__ = ("_keys", "bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...], values: Sequence[float] = ()) -> None:
        self.bounds = bounds
        # Whole bounds as whole numbers: comparing tokens with them costs half.
        whole = all(bound.is_integer() for bound in bounds)
        self._keys: tuple[float, ...] = tuple(map(int, bounds)) if whole else bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        if values:
            self.observe_all(values)

    def observe_all(self, values: Sequence[float]) -> None:
        """Count many at once."""
        counts = self.counts
        for position, number in Counter(map(bisect_left, repeat(self._keys), values)).items():
            counts[position] += number
        self.total += sum(values)

    def frozen(self) -> Histogram:
        """What was counted so far."""
        return Histogram(self.bounds, tuple(self.counts), self.total)
