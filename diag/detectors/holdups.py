"""What does it cost a running answer when others begin beside it? A regression over request records.

An answer's time from first to last token is so many tokens at the usual pace, plus so many seconds for each
thing that began on its engine meanwhile: a structured request, a thousand prompt tokens. No metric carries
this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.model import Floats
from diag.records.cohorts import Flags, Requests

__all__ = ["HoldUp", "held_up_by"]

_FEWEST = 40  # answers
_BLOCKS = 8  # of time, left out one after the other: neighbours share their troubles


@dataclass(frozen=True, slots=True)
class HoldUp:
    """``seconds`` for each unit of weight that begins beside an answer, with its ``error`` (one standard
    error); ``share``: of the answers' time that this makes up, 0 … 1; ``units``: mean weight that began
    beside one."""

    seconds: float
    error: float
    share: float
    units: float

    @property
    def sure(self) -> bool:
        """Whether it costs anything beyond chance."""
        return self.seconds > 3 * self.error


def held_up_by(requests: Requests, among: Flags, *weights: Floats) -> tuple[HoldUp, ...] | None:
    """For each of ``weights`` (one number a request, 0: does not count) what its units cost the answers
    ``among``; None when there are too few answers, or a weight never meets one."""
    decode = requests.duration - requests.ttft
    tokens = requests.output - 1.0
    kept = among & np.isfinite(decode) & (tokens >= 4) & (decode > 0)
    if kept.sum() < _FEWEST:
        return None
    # A late answer sees more begin for being late; what could begin in its usual time is no consequence.
    pace = float(np.median(decode[kept] / tokens[kept]))
    begun = [_begun_beside(requests, weight, pace)[kept] for weight in weights]
    if any(not b.any() for b in begun):
        return None
    # Long answers vary more: divide by the square root of their length.
    scale: Floats = np.sqrt(tokens[kept])
    design = np.column_stack([tokens[kept], *begun]) / scale[:, None]
    target = decode[kept] / scale
    costs = _solve(design, target)
    block = np.minimum(np.arange(len(target)) * _BLOCKS // len(target), _BLOCKS - 1)
    left_out = np.array([_solve(design[block != b], target[block != b]) for b in range(_BLOCKS)])
    errors = np.sqrt((_BLOCKS - 1) * np.var(left_out, axis=0))
    total = float(decode[kept].sum())
    return tuple(
        HoldUp(
            float(costs[i]), float(errors[i]),
            float(np.clip(costs[i] * b.sum() / total, 0.0, 1.0)), float(b.mean()),
        )
        for i, b in enumerate(begun, start=1)
    )  # fmt: skip


def _solve(design: Floats, target: Floats) -> Floats:
    found = np.linalg.lstsq(design, target, rcond=None)[0]
    return np.asarray(found, dtype=np.float64)


def _begun_beside(requests: Requests, weight: Floats, pace: float) -> Floats:
    """Sum of the weights of other requests that began on the same instance in the time that each answer takes
    at ``pace`` seconds a token."""
    wait = np.where(np.isfinite(requests.ttft), requests.ttft, 0.0)
    # Somewhere between its arrival and its first token a request makes itself felt.
    felt = requests.ts + wait / 2
    starts = requests.ts + wait
    ends = starts + pace * np.maximum(np.nan_to_num(requests.output) - 1.0, 0.0)
    known = np.nan_to_num(weight)
    total: Floats = np.zeros(len(requests))
    for code in np.unique(requests.instance):
        here = requests.instance == code
        order = np.argsort(felt[here], kind="stable")
        times = felt[here][order]
        sums = np.concatenate([[0.0], np.cumsum(known[here][order])])
        upto = np.searchsorted(times, ends[here], side="left")
        before = np.searchsorted(times, starts[here], side="right")
        total[here] = sums[upto] - sums[before]
    return total
