"""The fit finds the numbers that made the cases, and leaves weights alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from diag.accuracy.calibration import fit
from diag.accuracy.row import Answer, Row
from diag.errors import DiagError
from diag.triage.calibration import Calibration

IDS = [f"h{i}" for i in range(10)]
Make = Callable[..., Row]


def _made(row: Make, true: Calibration, count: int) -> Iterator[Row]:
    """Cases whose truth is drawn from the beliefs that ``true`` would hold."""
    rng = np.random.default_rng(5)
    for number in range(count):
        votes = [(("a", x), ("a", y), ("b", z)) for x, y, z in rng.normal(0, 2.0, size=(len(IDS), 3))]
        own = [_sum(one, true.agreement) for one in votes]
        scores = np.array([*own, true.unknown(len(IDS))]) / true.temperature
        beliefs = np.exp(scores - scores.max())
        chosen = rng.choice(len(IDS) + 1, p=beliefs / beliefs.sum())
        truth = "unknown" if chosen == len(IDS) else IDS[chosen]
        answers = tuple(
            Answer(id, "undecided", 0.1, own=_sum(one, 0.0), driven=True, votes=one)
            for id, one in zip(IDS, votes, strict=True)
        )
        yield row(
            "h0", truth=truth, name=f"c{number}", answers=(*answers, Answer("unknown", "undecided", 0.1))
        )


def _sum(votes: tuple[tuple[str, float], ...], agreement: float) -> float:
    total = 0.0
    for name in ("a", "b"):
        own = [weight for group, weight in votes if group == name]
        strongest = max(own, key=abs)
        total += float(np.clip(strongest + agreement * (sum(own) - strongest), -math.log(60), math.log(60)))
    return total


def test_the_fit_finds_what_made_the_cases(row: Make) -> None:
    true = Calibration(temperature=1.7, unknown_prior=0.35, agreement=0.5)
    found = fit(_made(row, true, 1500), Calibration(1.0, 0.2, 0.0))
    assert found.cases == 1500
    assert found.loss < found.loss_before
    assert found.calibration.temperature == pytest.approx(1.7, abs=0.25)
    assert found.calibration.unknown_prior == pytest.approx(0.35, abs=0.08)
    assert found.calibration.agreement == pytest.approx(0.5, abs=0.25)


def test_windows_without_a_symptom_teach_nothing(row: Make) -> None:
    seen = list(_made(row, Calibration(), 200))
    silent = [row(None, truth="h1", symptom=False), row("h1", truth=None)] * 50
    assert fit([*seen, *silent], Calibration(1.0, 0.2, 0.0)).cases == 200


def test_too_few_cases_are_refused(row: Make) -> None:
    with pytest.raises(DiagError, match="too few"):
        fit(list(_made(row, Calibration(), 20)), Calibration(1.0, 0.2, 0.0))
