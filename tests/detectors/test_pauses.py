"""Silences told from chance, and a beat from random moments."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diag.detectors.pauses import Pauses, pauses_of, period_odds
from diag.model import Case, Window
from diag.triage.run import look

START, SECONDS = 1_000_000.0, 1200.0


def pauses(begins: list[float], lasts: list[float], rate: float = 2.0) -> Pauses | None:
    """A service with two signs of life per request, halted now and then in its second half."""
    rng = np.random.default_rng(7)
    ts = np.sort(START + rng.uniform(0, SECONDS, int(rate * SECONDS)))
    firsts, ends = ts + 0.3 * rng.lognormal(0, 0.3, len(ts)), ts + 4 * rng.lognormal(0, 0.3, len(ts))
    for begin, last in zip(begins, lasts, strict=True):
        # What would have come out in the halt comes out at its end.
        for moments in (firsts, ends):
            inside = (moments >= START + begin) & (moments < START + begin + last)
            moments[inside] = START + begin + last + rng.uniform(0, 0.05, int(inside.sum()))
    frame = pd.DataFrame({
        "ts": ts, "ttft_seconds": firsts - ts, "duration_seconds": np.maximum(ends, firsts) - ts,
        "status": "ok", "prompt_tokens": 500.0, "instance": "e0",
    })  # fmt: skip
    half = START + SECONDS / 2
    window = Window(START, START + SECONDS)
    case = Case(
        window, 5.0, {}, requests=frame, baseline=Window(START, half - 1), incident=Window(half, window.end)
    )
    return pauses_of(look(case, 5.0))


def test_growing_halts_at_even_intervals_are_found_with_length_and_beat() -> None:
    begins = [620.0 + 60 * i for i in range(9)]
    lasts = [4.0 * 1.2**i for i in range(9)]
    found = pauses(begins, lasts)
    assert found is not None
    assert found.times == pytest.approx(START + np.array(begins), abs=1.5)
    assert found.seconds == pytest.approx(lasts, abs=1.5)
    assert found.period_seconds == pytest.approx(60, rel=0.05)
    assert found.odds < 0.02
    assert found.growth > 2.5
    assert found.lost_before < 0.02 < found.lost_during


def test_a_busy_service_without_halts_has_none() -> None:
    found = pauses([], [])
    assert found is not None
    assert len(found.times) == 0
    assert found.smallest_seconds < 4


def test_halts_too_short_to_tell_are_not_claimed() -> None:
    found = pauses([620.0 + 60 * i for i in range(9)], [0.3] * 9)
    assert found is not None
    assert len(found.times) == 0


def test_random_moments_pass_for_a_beat_no_more_often_than_said() -> None:
    rng = np.random.default_rng(11)
    odds = [period_odds(np.cumsum(rng.exponential(60, 9)))[1] for _ in range(300)]
    assert np.mean(np.array(odds) <= 0.1) == pytest.approx(0.1, abs=0.05)


def test_three_moments_say_nothing_of_a_beat() -> None:
    assert np.isnan(period_odds(np.array([1.0, 2.0, 3.0]))[1])
