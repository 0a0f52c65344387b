"""Prometheus' alert state machine over the answer of a range query: pending, firing, kept firing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Episode", "episodes"]

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Episode:
    """One instance of an alert that fired: from when, until when (seconds; None: still firing at the end)."""

    labels: _Labels
    fired: float
    resolved: float | None


def episodes(
    answer: Sequence[tuple[Mapping[str, str], frozenset[float]]],
    moments: Sequence[float],
    *,
    for_seconds: float,
    keep_firing_seconds: float,
) -> list[Episode]:
    """When each series of ``answer`` (its labels, the moments at which it was there) fired.

    ``moments`` are the evaluations in order. The rules are those of Prometheus 2.42: an instance that is
    there is pending, fires once it has been there for ``for_seconds``, and ends at the first evaluation
    without it, or ``keep_firing_seconds`` after that evaluation."""
    found: list[Episode] = []
    for labels, there in answer:
        own = tuple(sorted((name, value) for name, value in labels.items() if name != "__name__"))
        found += _of_one(own, there, moments, for_seconds, keep_firing_seconds)
    return sorted(found, key=lambda one: (one.fired, one.labels))


def _of_one(
    labels: _Labels, there: frozenset[float], moments: Sequence[float], hold: float, keep: float
) -> list[Episode]:
    found: list[Episode] = []
    since: float | None = None
    fired: float | None = None
    gone: float | None = None
    for now in moments:
        if now in there:
            gone = None
            since = now if since is None else since
            if fired is None and now - since >= hold:
                fired = now
            continue
        gone = now if gone is None else gone
        if fired is not None and now - gone < keep:
            continue
        if fired is not None:
            found.append(Episode(labels, fired, now))
        since, fired = None, None
    if fired is not None:
        found.append(Episode(labels, fired, None))
    return found
