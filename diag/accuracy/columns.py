"""A case as rival methods get it: one column a signal on the case's grid, and the moment to split it at.

Every method gets the same columns with the same treatment of gaps: at most two missing points are bridged,
a column that is more than half empty on either side is left out, and what is still missing becomes the
median of its own side, so that nothing leaks over the onset. Of several instances of one signal the one
that shifted most stands for it, which is more than these methods would find out by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from diag.accuracy.suspects import suspects_of
from diag.model import Case, Floats

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Columns", "columns_of"]

_BRIDGED_POINTS = 2
_FEWEST = 4
_BIN_SECONDS = 60.0
_SYMPTOMS = ("records:ttft_p95", "ttft_seconds_mean", "e2e_seconds_mean", "inter_token_seconds_mean")


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """``before``/``after``: signal → values of the grid on either side of ``onset``, shapes (m,) and (n,),
    no NaN, over the same signals. ``symptom``: the course that users feel, over both sides (m + n,)."""

    onset: float
    before: Mapping[str, Floats]
    after: Mapping[str, Floats]
    symptom: Floats

    def whole(self, name: str) -> Floats:
        """Both sides of a column, shape (m + n,)."""
        return np.concatenate([self.before[name], self.after[name]])


def columns_of(case: Case, onset: float) -> Columns:
    """Split ``case`` at ``onset`` (unix seconds, moved inside so that either side has a few points)."""
    times = _grid(case)
    at = int(np.clip(np.searchsorted(times, onset), _FEWEST, max(len(times) - _FEWEST, _FEWEST)))
    best: dict[str, tuple[float, Floats]] = {}
    for name, values in _candidates(case, times):
        if not suspects_of(name) and name not in _SYMPTOMS:
            continue
        filled = _filled(values, at)
        if filled is None:
            continue
        moved = _shift(filled, at)
        if name not in best or moved > best[name][0]:
            best[name] = (moved, filled)
    kept = {name: values for name, (_, values) in sorted(best.items())}
    symptom = next((kept[name] for name in _SYMPTOMS if name in kept), np.zeros(len(times)))
    named = {name: values for name, values in kept.items() if suspects_of(name)}
    return Columns(
        onset,
        {name: values[:at] for name, values in named.items()},
        {name: values[at:] for name, values in named.items()},
        symptom,
    )


def _grid(case: Case) -> Floats:
    for series in case.series.values():
        return series[0].times
    times: Floats = np.arange(case.window.start, case.window.end + 1e-9, case.step_seconds)
    return times


def _candidates(case: Case, times: Floats) -> Iterator[tuple[str, Floats]]:
    for name, several in case.series.items():
        for one in several:
            if len(one.values) == len(times):
                yield name, one.values
    if case.requests is not None and len(case.requests):
        told = dict(_of_requests(case.requests, times))
        yield from told.items()
        yield from _gap(case, times, told["records:ttft_mean"])


def _filled(values: Floats, at: int) -> Floats | None:
    known = np.isfinite(values)
    if known[:at].sum() * 2 < at or known[at:].sum() * 2 < len(values) - at:
        return None
    filled = values.copy()
    for side in (slice(0, at), slice(at, len(values))):
        filled[side] = _bridged(values[side])
    return filled


def _bridged(values: Floats) -> Floats:
    known = np.isfinite(values)
    if known.all():
        return values
    points = np.flatnonzero(known)
    where = np.arange(len(values))
    straight = np.interp(where, points, values[points])
    after = points[np.minimum(np.searchsorted(points, where), len(points) - 1)]
    before = points[np.maximum(np.searchsorted(points, where, side="right") - 1, 0)]
    short = (after - before - 1 <= _BRIDGED_POINTS) & (after >= where) & (before <= where)
    bridged: Floats = np.where(known | short, straight, float(np.median(values[points])))
    return bridged


def _shift(values: Floats, at: int) -> float:
    a, b = values[:at], values[at:]
    spread = float(np.std(a)) + 1e-3 * abs(float(np.mean(a))) + 1e-9
    return abs(float(np.mean(b)) - float(np.mean(a))) / spread


def _gap(case: Case, times: Floats, client: Floats) -> Iterator[tuple[str, Floats]]:
    """What clients waited beyond the engines' own mean, where records do not carry both."""
    engines = [one.values for one in case.of("ttft_seconds_mean") if len(one.values) == len(times)]
    if engines:
        known = np.isfinite(engines).any(axis=0)
        inside = np.full(len(times), np.nan)
        inside[known] = np.nanmean(np.array(engines)[:, known], axis=0)
        yield "records:gap", client - inside


def _of_requests(frame: pd.DataFrame, times: Floats) -> Iterator[tuple[str, Floats]]:
    """What a request log shows without any idea of a cause, in bins of a minute, as seen from the grid."""
    ts = frame["ts"].to_numpy(dtype=np.float64)
    width = max(_BIN_SECONDS, float(np.median(np.diff(times))) if len(times) > 1 else _BIN_SECONDS)
    code = np.floor((ts - times[0]) / width).astype(np.int64)
    at = np.maximum(np.floor((times - times[0]) / width).astype(np.int64) - 1, 0)  # the last full bin
    count = int(max(at.max(initial=0), code.max(initial=0))) + 1
    grouped = frame.assign(_bin=code)[(code >= 0)].groupby("_bin")

    def on_grid(values: pd.Series) -> Floats:
        row = np.full(count, np.nan)
        row[values.index.to_numpy()] = values.to_numpy(dtype=np.float64)
        placed: Floats = row[at]
        return placed

    arrivals = np.zeros(count)
    sizes = grouped.size()
    arrivals[sizes.index.to_numpy()] = sizes.to_numpy()
    yield "records:arrivals", arrivals[at]
    yield "records:ttft_p95", on_grid(grouped["ttft_seconds"].quantile(0.95))
    yield "records:ttft_mean", on_grid(grouped["ttft_seconds"].mean())
    yield "records:prompt_mean", on_grid(grouped["prompt_tokens"].mean())
    yield "records:prompt_most", on_grid(grouped["prompt_tokens"].max())
    yield "records:output_mean", on_grid(grouped["output_tokens"].mean())
    for name, values in _derived(frame):
        yield name, on_grid(values.groupby(code).mean()[lambda s: s.index >= 0])


def _derived(frame: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """A value a request; their mean over a bin is the column."""
    yield "records:computed_mean", frame["prompt_tokens"] - frame["cached_tokens"]
    yield "records:aborted", (frame["status"] == "aborted").astype(float)
    yield "records:errors", (frame["status"] == "error").astype(float)
    yield "records:gap", frame["ttft_seconds"] - frame["engine_ttft_seconds"]
    by_session = frame.groupby("session")
    yield "records:turn_mean", by_session.cumcount().where(frame["session"].notna()).astype(float)
    before = by_session["instance"].shift()
    yield "records:switches", (frame["instance"] != before).where(before.notna()).astype(float)
    if frame["tenant"].nunique() > 1:
        top = frame.groupby("tenant")["prompt_tokens"].sum().idxmax()
        yield "records:top_tenant", (frame["tenant"] == top).astype(float)
