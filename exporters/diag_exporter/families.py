"""What can stand on the page: families, rows, histograms. Base units last, labels bounded.

A family that does not apply to a machine has no rows; unsupported is absent, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["Collector", "Family", "Histogram", "NoData", "Row", "Rows"]

Kind = Literal["gauge", "counter", "histogram", "info"]
Group = Literal["fast", "slow"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. ``name`` without prefix ``llmdiag_`` is not allowed; counters end in ``_total``,
    info metrics in ``_info`` (value always 1). ``absence`` says what a missing series means;
    ``source`` where the number comes from (an NVML call, a log line, an endpoint)."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    absence: str = ""
    source: str = ""
    default: bool = True


@dataclass(frozen=True, slots=True)
class Histogram:
    """A classic histogram: ``counts[i]`` observations at or below ``bounds[i]`` and above the bound
    before (not cumulated); the last count is everything above the last bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Row:
    """One series of a family: label values in the family's order, and its value."""

    labels: tuple[str, ...]
    value: float | Histogram


Rows = Mapping[str, Sequence[Row]]


class NoData(Exception):
    """There is nothing to say right now (no such device, feature off): not a failure."""


class Collector(Protocol):
    """One topic. ``collect`` is called from one thread only; what it raises is counted as a failure
    (except ``NoData``), and its rows of the last success are dropped once they are stale."""

    name: str
    group: Group
    families: tuple[Family, ...]

    def collect(self, now: float) -> Rows:
        """Rows by family name. ``now``: unix seconds, the sampler's clock."""
