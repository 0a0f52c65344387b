"""Break the recordings from diag/engines and see whether made-up samples notice.

Each mutant is asked of a real Prometheus that holds the samples of the differential test and of a fleet. It
is killed when its answer is not what ``recording_answers`` worked out without the recording's text.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from diag.signals.frame import Grid
from tests.engines.store import Answer, Refused, Store, holding
from tests.rules.mutation import Mutant, Outcome
from tests.rules.recording_answers import GRID, Generated, same, samples, wanted
from tests.rules.recording_mutation import recording_mutants

__all__ = ["hunt_recordings", "noticed"]

# Two of the grid's times, which are cheap to ask for and notice nearly all.
_FEW = slice(3, 6, 2)
_FEW_GRID = Grid(float(GRID.times[3]), float(GRID.times[5]), 2 * GRID.step, GRID.window)


def noticed(store: Store, expr: str, answer: Answer) -> bool:
    """Whether ``expr`` gives something else than ``answer`` or cannot be answered at all."""
    few = {key: values[_FEW] for key, values in answer.items()}
    try:
        return not (same(store.ask(expr, _FEW_GRID), few) and same(store.ask(expr, GRID), answer))
    except Refused:
        return True


def hunt_recordings(chosen: Sequence[Generated], *, jobs: int = 4) -> list[Outcome]:
    """Ask every mutant of ``chosen``. Raises AssertionError when an unbroken recording is noticed, or has no
    finite value at all."""
    series = samples()
    answers = wanted(series)
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name, holding(series, Path(name)) as store:
        for one in chosen:
            answer = answers[one.title]
            assert any(np.isfinite(values).any() for values in answer.values()), f"{one.title} has no value"
            assert not noticed(store, one.rule.expr, answer), f"{one.title} is not what its signal is"
            found += _asked(store, recording_mutants(one.rule), answer, jobs)
            print(f"{one.title}: {len(found)} mutants so far", file=sys.stderr)
    return found


def _asked(store: Store, broken: Sequence[Mutant], answer: Answer, jobs: int) -> list[Outcome]:
    with ThreadPoolExecutor(jobs) as pool:
        dead = pool.map(lambda mutant: noticed(store, mutant.rule.expr, answer), broken)
        return [Outcome(mutant, one) for mutant, one in zip(broken, dead, strict=True)]
