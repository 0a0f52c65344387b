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

__all__ = ["Fit", "fit"]

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
class _Cases:
    """Padded with 0, n cases of at most k hypotheses with at most g groups. ``rest`` (n, k): what of
    ``own`` no vote explains; ``strongest``/``others`` (n, k, g): the strongest vote of a group and the sum of
    the others; ``there``/``right`` (n, k): which are hypotheses, and accepted ones; ``none`` (n,): unknown is
    accepted; ``unknowns`` (n,): how many hypotheses share the prior."""

    rest: np.ndarray
    strongest: np.ndarray
    others: np.ndarray
    there: np.ndarray
    right: np.ndarray
    none: np.ndarray
    unknowns: np.ndarray


def fit(rows: Iterable[Row], start: Calibration = CALIBRATION) -> Fit:
    """The calibration with the least log loss; ``start`` is the one that the rows were judged with.

    Raises:
        DiagError: there are too few cases in which a symptom was seen.
    """
    seen = [row for row in rows if row.symptom and row.label.kind is not Kind.HEALTHY and _answerable(row)]
    if len(seen) < _FEWEST:
        raise DiagError(f"{len(seen)} cases are too few to calibrate on", hint=f"{_FEWEST} are needed")
    cases = _stacked(seen, start)
    best = _searched(lambda chosen: _loss(cases, chosen), start)
    return Fit(best, _loss(cases, best), _loss(cases, start), len(seen))


def _answerable(row: Row) -> bool:
    accepted = set(row.label.accept)
    return UNKNOWN in accepted or any(one.id in accepted for one in _competing(row))


def _loss(cases: _Cases, chosen: Calibration) -> float:
    """Mean −ln P(an accepted answer)."""
    votes = np.clip(cases.strongest + chosen.agreement * cases.others, -_CLIP, _CLIP)
    own = np.where(cases.there, cases.rest + votes.sum(axis=2), -np.inf)
    none = np.array([chosen.unknown(int(count)) for count in cases.unknowns])
    scores = np.concatenate([own, none[:, None]], axis=1) / chosen.temperature
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    right = np.where(cases.right, weights[:, :-1], 0.0).sum(axis=1) + np.where(
        cases.none, weights[:, -1], 0.0
    )
    return float(-np.log(np.maximum(right / weights.sum(axis=1), 1e-12)).mean())


def _stacked(rows: Sequence[Row], start: Calibration) -> _Cases:
    competing = [_competing(row) for row in rows]
    grouped = [[_grouped(one) for one in rivals] for rivals in competing]
    n, k = len(rows), max(len(rivals) for rivals in competing)
    g = max((len(groups) for rivals in grouped for groups in rivals), default=1)
    strongest, others, rest = np.zeros((n, k, g)), np.zeros((n, k, g)), np.zeros((n, k))
    there, right = np.zeros((n, k), dtype=bool), np.zeros((n, k), dtype=bool)
    for i, (row, rivals) in enumerate(zip(rows, competing, strict=True)):
        for j, answer in enumerate(rivals):
            for m, (most, more) in enumerate(grouped[i][j]):
                strongest[i, j, m], others[i, j, m] = most, more
            voted = np.clip(strongest[i, j] + start.agreement * others[i, j], -_CLIP, _CLIP).sum()
            rest[i, j], there[i, j] = answer.own - voted, True
            right[i, j] = answer.id in row.label.accept
    none = np.array([UNKNOWN in row.label.accept for row in rows])
    unknowns = np.array([sum(one.id != UNKNOWN for one in row.answers) for row in rows])
    return _Cases(rest, strongest, others, there, right, none, unknowns)


def _competing(row: Row) -> list[Answer]:
    """Who shares the belief: triggers that can be judged; consequences of a supported cause are no rivals
    of it, unless one of them is a right answer itself."""
    accepted = set(row.label.accept) - {UNKNOWN}
    return [one for one in row.answers if one.id in accepted or _competes(one)]


def _competes(one: Answer) -> bool:
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
