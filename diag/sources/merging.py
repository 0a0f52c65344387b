"""Lay what several sources and producers delivered side by side, each thing counted once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from diag.engines import ENGINES
from diag.model import Gap, Series
from diag.signals import SIGNALS
from diag.signals.vocabulary import Scope
from diag.sources.protocol import Fetched

__all__ = ["merged_gaps", "merged_series", "without_twins"]

_ORDER = {engine.name: place for place, engine in enumerate(ENGINES)}
_Identity = tuple[str, ...]
_SAME_WORK_RATIO = 0.05


def merged_series(
    parts: Sequence[tuple[str, Fetched]],
) -> tuple[dict[str, tuple[Series, ...]], tuple[str, ...]]:
    """Series by signal. ``parts``: (source's ref, what it fetched); for a thing that two sources
    or two producers describe by the same signal the first one's series stands, and a note says so."""
    merged: dict[str, list[Series]] = defaultdict(list)
    owner: dict[tuple[str, _Identity], tuple[str, str]] = {}
    doubled: dict[tuple[str, str], set[str]] = defaultdict(set)
    for ref, fetched in parts:
        for name, rows in fetched.series.items():
            for one in sorted(rows, key=lambda row: _ORDER.get(row.producer, len(_ORDER))):
                key = (name, _identity(one))
                first = owner.setdefault(key, (ref, one.producer))
                if first == (ref, one.producer):
                    merged[name].append(one)
                else:
                    kept, dropped = _said(first, (ref, one.producer))
                    doubled[(kept, dropped)].add(_thing(one))
    notes = tuple(
        f"{', '.join(sorted(things)[:3])}{', …' if len(things) > 3 else ''} is in {kept} and in {dropped};"
        f" the former's series were used"
        for (kept, dropped), things in sorted(doubled.items())
    )
    return {name: tuple(merged[name]) for name in SIGNALS if name in merged}, notes


def merged_gaps(parts: Iterable[Fetched], series: Mapping[str, object]) -> tuple[Gap, ...]:
    """The gaps that no source filled; the most telling reason of each."""
    best: dict[str, Gap] = {}
    for fetched in parts:
        for one in fetched.gaps:
            if one.signal in series:
                continue
            held = best.get(one.signal)
            if held is None or held.reason.startswith("nothing here"):
                best[one.signal] = one
    return tuple(best[name] for name in SIGNALS if name in best)


def without_twins(
    series: Mapping[str, tuple[Series, ...]],
) -> tuple[dict[str, tuple[Series, ...]], tuple[str, ...]]:
    """Drop the second of two instances that are one process under two addresses.

    One process: started in the same hundredth of a second, and the same tokens within five per cent.
    """
    by_start: dict[float, list[str]] = defaultdict(list)
    for one in series.get("engine_start_time_seconds", ()):
        known = one.values[~np.isnan(one.values)]
        if known.size:
            by_start[round(float(known[-1]), 2)].append(one.labels.get("instance", ""))
    twin_of: dict[str, str] = {}
    for instances in by_start.values():
        first, *others = sorted(set(instances))
        twin_of.update({other: first for other in others if _same_work(series, first, other)})
    if not twin_of:
        return dict(series), ()
    kept = {
        name: tuple(
            one for one in rows
            if SIGNALS[name].scope is not Scope.ENGINE or one.labels.get("instance", "") not in twin_of
        )
        for name, rows in series.items()
    }  # fmt: skip
    notes = tuple(
        f"{other} and {first} are one process (same start, same work); counted once"
        for other, first in sorted(twin_of.items())
    )
    return {name: rows for name, rows in kept.items() if rows}, notes


def _same_work(series: Mapping[str, tuple[Series, ...]], first: str, other: str) -> bool:
    for name in ("generation_tokens_per_second", "prompt_tokens_per_second", "finished_requests_per_second"):
        sums = [
            float(np.nansum(one.values)) for who in (first, other) for one in series.get(name, ())
            if one.labels.get("instance") == who
        ]  # fmt: skip
        if len(sums) == 2 and max(sums) > 0:
            return abs(sums[0] - sums[1]) <= _SAME_WORK_RATIO * max(sums)
    return True


def _identity(one: Series) -> _Identity:
    labels = one.labels
    if SIGNALS[one.signal].scope is Scope.GPU and labels.get("gpu"):
        where = "" if labels["gpu"].startswith(("GPU-", "MIG-")) else labels.get("node", "")
        return (labels["gpu"], labels.get("mig_instance", ""), where)
    return tuple(f"{name}={value}" for name, value in sorted(labels.items()) if name not in ("job", "node"))


def _thing(one: Series) -> str:
    return one.labels.get("gpu") or one.labels.get("instance") or one.signal


def _said(first: tuple[str, str], later: tuple[str, str]) -> tuple[str, str]:
    if first[0] != later[0]:
        return first[0], later[0]
    return f"{first[1]}'s series", f"{later[1]}'s"
