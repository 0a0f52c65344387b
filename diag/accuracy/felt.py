"""Whether anybody was really worse off in a run, told by the truth and not by any detector.

A case whose symptom is absent is no case: however right the label, nobody would have opened it. The
limits are what a user notices (0.1 s instantaneous, 1 s flow of thought; Nielsen, Usability
Engineering, 1993) with a ratio beside each, since 20 ms that become 40 ms are no incident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diag.model import Floats
from diag.simulate.observed import Call, Run

__all__ = ["LIMITS", "Felt", "Noticed", "calm", "felt"]

_RUN_IN = 0.05  # of the window: an empty service that fills is no baseline
_FEWEST = 30  # calls on either side
_FEWEST_TAIL = 80  # where a 95th percentile is read
_PLAIN = 2.0  # limits; what passes them by less must last
_LATE_SHARE = 0.5  # of what follows the onset: a climb is felt once it is high
_STILL_SECONDS = 60.0
_OVERLOADED_SECONDS = 20.0
_IN_FLIGHT_SECONDS = 180.0  # calls sent this shortly before the onset may still meet it


@dataclass(frozen=True, slots=True)
class Noticed:
    """A limit: worse by ``ratio`` and by ``amount`` in the measure's unit."""

    ratio: float
    amount: float


LIMITS: Mapping[str, Noticed] = {
    "client_ttft_p50": Noticed(1.5, 0.3),
    "client_ttft_p95": Noticed(1.5, 0.5),
    "engine_ttft_p50": Noticed(1.5, 0.3),
    "engine_ttft_p95": Noticed(1.5, 0.5),
    "inter_token_mean": Noticed(1.3, 0.010),
    "inter_token_p95": Noticed(1.5, 0.030),
    "end_to_end_p50": Noticed(1.5, 1.0),
    "end_to_end_p95": Noticed(1.5, 2.0),
    "error_ratio": Noticed(1.5, 0.05),
    "left_ratio": Noticed(1.5, 0.10),
    "standstill_seconds": Noticed(1.5, _STILL_SECONDS),
}
"""Measure → limit. Seconds, but for the two shares (0 … 1)."""


@dataclass(frozen=True, slots=True)
class Felt:
    """``what``: the measure that was worst in multiples of its limit; ``who``: "all", "replica:…" or
    "tenant:…"; ``before``/``during`` in its unit; ``onset``: seconds since the window's start, when calls
    turn from seldom to often bad (None when nothing is felt)."""

    felt: bool
    what: str = ""
    who: str = ""
    before: float = float("nan")
    during: float = float("nan")
    strength: float = 0.0
    onset: float | None = None

    @property
    def ratio(self) -> float:
        """During over before; NaN where nothing was measured."""
        return self.during / self.before if self.before > 0 else float("inf")

    @property
    def amount(self) -> float:
        """During minus before."""
        return self.during - self.before


def felt(run: Run, onset: float | None = None) -> Felt:
    """The worst change at ``onset`` (seconds since the window's start; default: the label's, or the
    middle of the window when nothing is meant to be wrong)."""
    end = float(run.times[-1])
    at = onset if onset is not None else run.plan.truth.onset
    at = end / 2 if at is None else at
    columns = _columns(run.calls, end)
    found = [_standstill(run, at)]
    found += [_one(columns, keep, who, at, end) for who, keep in _groups(run.calls)]
    best = max(found, key=lambda one: one.strength, default=Felt(False))
    return best if best.felt else Felt(False, best.what, best.who, best.before, best.during, best.strength)


def calm(run: Run) -> bool:
    """Whether the service was in order before the onset (or throughout, where there is none): half of all
    callers waited less than 20 s for a first token, and nothing was plainly felt half-way through.

    A service that was overloaded all along, or that something else had hurt before, is a case of something
    else than its label says."""
    end = float(run.times[-1])
    onset = run.plan.truth.onset
    until = end if onset is None else onset - _IN_FLIGHT_SECONDS
    columns = _columns(run.calls, end)
    quiet = columns["sent"] < until
    waits = columns["client_ttft"][quiet]
    if not np.isfinite(waits).any() or float(np.nanmedian(waits)) > _OVERLOADED_SECONDS:
        return False
    middle = until / 2
    found = (_one(columns, keep & quiet, who, middle, until) for who, keep in _groups(run.calls))
    return not any(one.strength >= _PLAIN for one in found)


def _columns(calls: Sequence[Call], end: float) -> dict[str, Floats]:
    """Arrays over the calls, in order of sending; what was still open has waited at least until ``end``."""
    ordered = sorted(calls, key=lambda one: one.sent)
    raw = {
        name: np.array([getattr(call, name) for call in ordered], dtype=np.float64)
        for name in ("sent", "arrived", "first_token", "ended", "answered", "closed", "output_tokens")
    }
    status = np.array([call.status for call in ordered], dtype=object)
    still = status == ""
    with np.errstate(invalid="ignore", divide="ignore"):
        many = raw["output_tokens"] > 1
        columns = {
            "sent": raw["sent"],
            "client_ttft": _waited(raw["answered"] - raw["sent"], end - raw["sent"], still),
            "engine_ttft": _waited(raw["first_token"] - raw["arrived"], end - raw["arrived"], still),
            "inter_token": np.where(
                many, (raw["ended"] - raw["first_token"]) / (raw["output_tokens"] - 1), np.nan
            ),
            "end_to_end": _waited(raw["closed"] - raw["sent"], end - raw["sent"], still),
        }
    columns["error"] = np.where(still, np.nan, (status == "error").astype(np.float64))
    columns["left"] = np.where(still, np.nan, (status == "aborted").astype(np.float64))
    return columns


def _waited(seconds: Floats, so_far: Floats, still: np.ndarray) -> Floats:
    # A lower bound counts only where it is already long: a call sent a moment ago says nothing.
    bound = np.where(still & np.isnan(seconds) & (so_far > 5.0), so_far, np.nan)
    waited: Floats = np.where(np.isnan(seconds), bound, seconds)
    return waited


def _groups(calls: Sequence[Call]) -> Iterator[tuple[str, np.ndarray]]:
    ordered = sorted(calls, key=lambda one: one.sent)
    yield "all", np.ones(len(ordered), dtype=bool)
    for kind in ("replica", "tenant"):
        names = np.array([getattr(call, kind) for call in ordered], dtype=object)
        known = sorted({name for name in names if name})
        if len(known) > 1:
            for name in known:
                yield f"{kind}:{name}", names == name


_STATISTICS: Mapping[str, Callable[[Floats], float]] = {
    "p50": lambda values: float(np.quantile(values, 0.5)),
    "p95": lambda values: float(np.quantile(values, 0.95)),
    "mean": lambda values: float(np.mean(values)),
    "ratio": lambda values: float(np.mean(values)),
}


def _one(columns: Mapping[str, Floats], keep: np.ndarray, who: str, at: float, end: float) -> Felt:
    """The worst measure of one group of calls."""
    sent = columns["sent"]
    before = keep & (sent >= _RUN_IN * end) & (sent < at)
    late = at + _LATE_SHARE * (end - at)
    best = Felt(False, who=who, strength=-1.0)
    for name, limit in LIMITS.items():
        column, _, statistic = name.rpartition("_")
        if column not in columns:
            continue
        values = columns[column]
        for since in (at, late):
            during = keep & (sent >= since)
            strength, a, b = _lasting(values[before], values[during], statistic, limit)
            if strength > best.strength:
                onset = _turn(sent[keep], values[keep], at, limit, a)
                best = Felt(strength >= 1.0, name, who, a, b, strength, onset)
    return best


def _lasting(a: Floats, b: Floats, statistic: str, limit: Noticed) -> tuple[float, float, float]:
    """As ``_strength``; but what passes its limit only just, and in less than two thirds of the time at least
    by half, is taken for chance: calls come in bursts, and groups are many."""
    strength, before, during = _strength(a, b, statistic, limit)
    if 1.0 <= strength < _PLAIN:
        thirds = [_compared(a, part, statistic, limit)[0] for part in np.array_split(b, 3)]
        if sum(third >= 0.5 for third in thirds) < 2:
            return 0.99, before, during
    return strength, before, during


def _strength(a: Floats, b: Floats, statistic: str, limit: Noticed) -> tuple[float, float, float]:
    """How many limits worse (the lesser of ratio and amount), and the two values."""
    fewest = _FEWEST_TAIL if statistic == "p95" else _FEWEST
    if min(np.isfinite(a).sum(), np.isfinite(b).sum()) < fewest:
        return -1.0, float("nan"), float("nan")
    return _compared(a, b, statistic, limit)


def _compared(a: Floats, b: Floats, statistic: str, limit: Noticed) -> tuple[float, float, float]:
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if not len(a) or not len(b):
        return -1.0, float("nan"), float("nan")
    measure = _STATISTICS[statistic]
    before, during = measure(a), measure(b)
    by_ratio = np.log(max(during, 1e-9) / max(before, 1e-9)) / np.log(limit.ratio)
    return float(min(by_ratio, (during - before) / limit.amount)), before, during


def _turn(sent: Floats, values: Floats, at: float, limit: Noticed, before: float) -> float:
    """Where calls turn from seldom to often bad: the best split of a two-valued sequence into a calm and
    a bad part (maximum of the cumulative sum); never before the cause begins."""
    known = np.isfinite(values)
    sent, values = sent[known], values[known]
    bad = values > max(before * limit.ratio, before + limit.amount)
    later = sent >= at
    if not later.any() or not bad[later].any():
        return at
    calm = float(bad[~later].mean()) if (~later).any() else 0.0
    # Halfway between the two shares is where one more call speaks for neither side.
    drift = np.cumsum(bad - (calm + float(bad[later].mean())) / 2)
    first = int(np.flatnonzero(later)[0])
    tail = np.concatenate(([drift[first - 1] if first else 0.0], drift[first:-1]))
    return max(at, float(sent[first + int(np.argmin(tail))]))


def _standstill(run: Run, at: float) -> Felt:
    """The longest stretch in which an engine held requests and moved no token."""
    worst = Felt(False, what="standstill_seconds", strength=-1.0)
    for engine in run.engines:
        held = engine.gauges["running"] + engine.gauges["waiting"]
        tokens = engine.counters["generation_tokens"] + engine.counters["prompt_tokens"]
        still = (np.diff(tokens) <= 0) & (held[1:] > 0) & (held[:-1] > 0)
        times = run.times[1:]
        calm, _ = _longest(still & (times < at), times, run.plan.step_seconds)
        bad, since = _longest(still & (times >= at), times, run.plan.step_seconds)
        strength = min(bad / _STILL_SECONDS, bad / max(1.5 * calm, 1e-9))
        if strength > worst.strength:
            worst = Felt(
                strength >= 1.0, "standstill_seconds", f"replica:{engine.name}", calm, bad, strength,
                max(at, since),
            )  # fmt: skip
    return worst


def _longest(flags: np.ndarray, times: Floats, step: float) -> tuple[float, float]:
    """Length and beginning of the longest run of true ``flags``, seconds."""
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(starts):
        return 0.0, float("inf")
    at = int(np.argmax(ends - starts))
    return float((ends[at] - starts[at]) * step), float(times[starts[at]] - step)
