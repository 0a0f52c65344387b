"""One sampling thread, immutable snapshots: a scrape never waits for a driver.

Seam: ``Snapshot`` and ``Sampler``'s constructor are fixed; the loop is filled in by its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from diag_exporter.families import Collector, Family, Row

__all__ = ["CollectorHealth", "Sampler", "Snapshot"]


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """How a collector fared: ``success`` of its last run, ``seconds`` it took, ``last_success`` unix
    seconds (None: never), ``failures`` since start, ``error`` of the last failure (for the log)."""

    success: bool
    seconds: float
    last_success: float | None
    failures: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows that may be served at ``time``. ``families`` in serving order; ``rows`` by family."""

    time: float
    families: tuple[Family, ...] = ()
    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    health: Mapping[str, CollectorHealth] = field(default_factory=dict)


class Sampler:
    """Runs collectors in two groups and keeps the newest snapshot."""

    def __init__(
        self,
        collectors: Sequence[Collector],
        *,
        fast_seconds: float = 1.0,
        slow_seconds: float = 15.0,
        stale_after: float = 3.0,
        clock: Callable[[], float],
    ) -> None:
        """``stale_after``: rows older than this many intervals of their group stop being served."""
        raise NotImplementedError
