"""Felt is what a user would notice, told from the truth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.accuracy.felt import felt
from diag.simulate.observed import Run

ONSET = 1800.0
Make = Callable[..., Run]


def _after(before: float, after: float) -> Callable[[float], float]:
    return lambda sent: after if sent >= ONSET else before


def test_a_long_wait_is_felt_at_its_onset(run: Make) -> None:
    found = felt(run(_after(0.3, 3.0)))
    assert found.felt
    assert found.what.startswith(("client_ttft", "engine_ttft"))
    assert found.who == "all"
    assert found.ratio == pytest.approx(10)
    assert found.amount == pytest.approx(2.7)
    assert found.onset == pytest.approx(ONSET, abs=10)


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.3), (0.02, 0.2), (4.0, 5.0)])
def test_what_is_small_by_ratio_or_by_amount_is_not_felt(before: float, after: float, run: Make) -> None:
    found = felt(run(_after(before, after)))
    assert not found.felt
    assert found.onset is None


def test_a_climb_is_felt_later_than_it_begins(run: Make) -> None:
    found = felt(run(lambda sent: 0.3 + max(0.0, sent - ONSET) / 900.0))
    assert found.felt
    assert found.onset is not None
    assert ONSET + 120 < found.onset < ONSET + 900


def test_one_replica_of_many_is_enough(run: Make) -> None:
    def turn(number: int) -> str:
        return "slow" if number % 20 == 0 else f"r{number % 3}"

    made = run(_after(0.3, 0.3), spacing_seconds=1.0, replica=turn)
    for call in made.calls:
        if call.replica == "slow" and call.sent >= ONSET:
            call.first_token = call.answered = call.sent + 4.0
            call.ended = call.closed = call.sent + 6.0
    found = felt(made)
    assert found.felt
    assert found.who == "replica:slow"


def test_losses_are_felt_though_nobody_waits(run: Make) -> None:
    lost = run(
        _after(0.3, 0.3), status=lambda sent: "error" if sent >= ONSET and int(sent) % 4 == 1 else "ok"
    )
    found = felt(lost)
    assert found.felt
    assert found.what == "error_ratio"


def test_calls_that_never_end_count_as_waiting(run: Make) -> None:
    made = run(_after(0.3, 0.3))
    for call in made.calls:
        if call.sent >= ONSET:
            call.first_token = call.answered = call.ended = call.closed = np.nan
            call.status = ""
    assert felt(made).felt


def test_an_engine_that_stands_still_is_felt(run: Make) -> None:
    made = run(_after(0.3, 0.3))
    stands = (made.times >= 2000) & (made.times <= 2600)
    for name in ("generation_tokens", "prompt_tokens"):
        counter = made.engines[0].counters[name]
        counter[stands] = counter[stands][0]
    found = felt(made)
    assert found.felt
    assert found.what == "standstill_seconds"
    assert found.who == "replica:a"
    assert found.during == pytest.approx(600, abs=15)


def test_an_idle_engine_does_not_stand_still(run: Make) -> None:
    made = run(_after(0.3, 0.3))
    made.engines[0].gauges["running"][:] = 0
    made.engines[0].counters["generation_tokens"][:] = 5
    made.engines[0].counters["prompt_tokens"][:] = 5
    assert not felt(made).felt


def test_nothing_is_felt_in_a_healthy_hour_of_random_waits(run: Make) -> None:
    rng = np.random.default_rng(3)
    made = run(lambda _sent: float(rng.lognormal(np.log(0.5), 0.5)), onset=None)
    assert not felt(made).felt
