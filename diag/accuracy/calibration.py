"""Fit the three numbers of ``diag.triage.calibration`` on rows of the *calibrate* family.

Log loss of the accepted answer under the softmax over all assessable triggers and "none of ours", minimised
by a pattern search: three parameters, no gradient, seconds. Weights are never touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diag.accuracy.label import UNKNOWN, Kind
from diag.accuracy.row import Answer, Row
from diag.errors import DiagError
from diag.triage.calibration import CALIBRATION, Calibration

__all__ = ["Fit", "fit", "loss_of"]

_CLIP = math.log(60)  # as diag.triage.rank clips a group's vote
_FEWEST = 50
_BOUNDS = {"temperature": (0.3, 6.0), "unknown_prior": (0.02, 0.9), "agreement": (0.0, 1.0)}


@dataclass(frozen=True, slots=True)
class Fit:
    """The numbers found, and the mean log loss with them and with those in force (nats a case)."""

    calibration: Calibration
    loss: float
    loss_before: float
    cases: int


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """``rest``: what of ``own`` no vote explains. ``strongest``/``others``: (k, g) padded with 0: per
    hypothesis and group the strongest vote and the sum of the others. ``right``: which are accepted;
    ``none``: unknown is."""

    rest: np.ndarray
    strongest: np.ndarray
    others: np.ndarray
    right: np.ndarray
    none: bool
    hypotheses: int


def fit(rows: Iterable[Row], start: Calibration = CALIBRATION) -> Fit:
    """The calibration with the least log loss.

    Raises:
        DiagError: there are too few cases in which a symptom was seen.
    """
    cases = [_case(row, start) for row in rows if row.symptom and row.label.kind is not Kind.HEALTHY]
    cases = [one for one in cases if one.none or one.right.any()]
    if len(cases) < _FEWEST:
        raise DiagError(
            f"{len(cases)} cases are too few to calibrate on", hint=f"at least {_FEWEST} are needed"
        )

    def loss(chosen: Calibration) -> float:
        return loss_of(cases, chosen)

    best = _searched(loss, start)
    return Fit(best, loss(best), loss(start), len(cases))


def loss_of(cases: Sequence[_Case], chosen: Calibration) -> float:
    """Mean −ln P(an accepted answer)."""
    return float(np.mean([_loss(one, chosen) for one in cases]))


def _loss(one: _Case, chosen: Calibration) -> float:
    votes = np.clip(one.strongest + chosen.agreement * one.others, -_CLIP, _CLIP)
    own = np.append(one.rest + votes.sum(axis=1), chosen.unknown(one.hypotheses)) / chosen.temperature
    weights = np.exp(own - own.max())
    right = float(weights[:-1][one.right].sum() + (weights[-1] if one.none else 0.0))
    return -math.log(max(right / float(weights.sum()), 1e-12))


def _case(row: Row, start: Calibration) -> _Case:
    accepted = set(row.label.accept)
    rivals = [one for one in row.answers if _competes(one) or (one.id in accepted and one.id != UNKNOWN)]
    grouped = [_grouped(one) for one in rivals]
    width = max((len(groups) for groups in grouped), default=1)
    strongest, others = np.zeros((len(rivals), width)), np.zeros((len(rivals), width))
    rest = np.zeros(len(rivals))
    for i, (answer, groups) in enumerate(zip(rivals, grouped, strict=True)):
        for j, (most, more) in enumerate(groups):
            strongest[i, j], others[i, j] = most, more
        voted = np.clip(strongest[i] + start.agreement * others[i], -_CLIP, _CLIP).sum()
        rest[i] = answer.own - voted
    everyone = sum(one.id != UNKNOWN for one in row.answers)
    right = np.array([one.id in accepted for one in rivals], dtype=bool)
    return _Case(rest, strongest, others, right, UNKNOWN in accepted, everyone)


def _competes(one: Answer) -> bool:
    """Consequences of a supported cause are no rivals of it."""
    return one.id != UNKNOWN and one.state != "not_assessable" and one.trigger and not one.consequence


def _grouped(answer: Answer) -> list[tuple[float, float]]:
    groups: dict[str, list[float]] = {}
    for group, weight in answer.votes:
        groups.setdefault(group, []).append(weight)
    return [(max(votes, key=abs), sum(votes) - max(votes, key=abs)) for votes in groups.values()]


def _searched(loss: Callable[[Calibration], float], start: Calibration) -> Calibration:
    """Try a step up and down in each number, halve the steps when none helps (Hooke and Jeeves, JACM 8 (1961)
    212)."""
    best, least = start, loss(start)
    steps = {"temperature": 0.5, "unknown_prior": 0.1, "agreement": 0.2}
    while max(steps.values()) > 0.004:
        moved = False
        for name, step in steps.items():
            low, high = _BOUNDS[name]
            for sign in (1, -1):
                value = min(max(getattr(best, name) + sign * step, low), high)
                tried = replace(best, **{name: value})
                found = loss(tried)
                if found < least - 1e-9:
                    best, least, moved = tried, found, True
        if not moved:
            steps = {name: step / 2 for name, step in steps.items()}
    return best
