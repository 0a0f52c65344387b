"""What has to be computed anew, what is new, and requests that cost far more than is usual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from diag.detectors.new_work import costly_of, extra_of, payers_of
from diag.detectors.view import View
from diag.model import Case, Series, Window
from diag.triage.run import look

START, HALF, END = 1_000_000.0, 1_000_500.0, 1_001_000.0
EVERY = np.arange(START, END, 2.0)
LATE = EVERY >= HALF


def view(series: dict[str, Any] | None = None, **columns: Any) -> View:
    """A request every two seconds, 1,000 tokens of which 900 are cached, but for what ``columns`` say."""
    usual = {
        "ts": EVERY, "status": "ok", "tenant": "t-a", "prompt_tokens": 1000.0, "cached_tokens": 900.0,
        "output_tokens": 100.0, "ttft_seconds": 0.2, "e2e_seconds": 5.0,
    }  # fmt: skip
    grid = START + 5.0 * np.arange(200, dtype=np.float64)
    given = {
        name: (Series(name, {"instance": "e0"}, grid, np.asarray(values, dtype=np.float64)),)
        for name, values in (series or {}).items()
    }
    frame = pd.DataFrame({**usual, **columns}) if columns else None
    return look(
        Case(
            Window(START, END), 5.0, given, requests=frame,
            baseline=Window(START, HALF - 1), incident=Window(HALF, END),
        ),
        5.0,
    )  # fmt: skip


def test_what_a_cache_lost_is_computed_anew() -> None:
    seen = extra_of(view(cached_tokens=np.where(LATE, 0.0, 900.0)))
    assert seen is not None
    assert seen.during > 5 * seen.before
    assert seen.anew == pytest.approx(1.0, abs=0.05)


def test_a_new_tenants_prompts_are_new_work() -> None:
    new = LATE & (np.arange(len(EVERY)) % 3 == 0)
    seen = extra_of(
        view(
            tenant=np.where(new, "t-b", "t-a"),
            prompt_tokens=np.where(new, 4000.0, 1000.0),
            cached_tokens=np.where(new, 0.0, 900.0),
        )
    )
    assert seen is not None
    assert seen.anew < 0.05


@pytest.mark.parametrize(("hits", "rate", "anew"), [(0.2, 1000.0, True), (0.45, 2000.0, False)])
def test_an_engine_that_finds_what_it_found_lost_nothing(hits: float, rate: float, anew: bool) -> None:
    """Without records: a ratio that new prompts thin out is no loss of hits."""
    late = np.arange(200) >= 100
    wiggle = 1 + 0.01 * np.sin(np.arange(200))
    seen = extra_of(
        view(
            {
                "running_requests": np.full(200, 3.0),
                "prefix_cache_hit_ratio": np.where(late, hits, 0.9) * wiggle,
                "prompt_tokens_per_second": np.where(late, rate, 1000.0) * wiggle,
            }
        )
    )
    assert seen is not None
    assert (seen.anew > 0.5) is anew


@pytest.mark.parametrize("known", [True, False])
def test_a_giant_is_what_costs_much(known: bool) -> None:
    """Long or not: a prompt no longer than others is one if none of it can be cached."""
    giant = LATE & (np.arange(len(EVERY)) % 4 == 0)
    cached = np.where(giant, 0.0, 900.0) if known else np.full(len(EVERY), np.nan)
    found = view(tenant=np.where(giant, "t-b", "t-a"), cached_tokens=cached)
    assert found.workload is not None
    costly = costly_of(found.workload)
    assert costly is not None
    assert bool(costly.flags.any()) is known
    if known:
        assert (costly.flags == giant).all()
        assert costly.during > 0.5 > costly.before


def test_a_broken_cache_makes_no_giants() -> None:
    found = view(cached_tokens=np.where(LATE, 0.0, 900.0))
    assert found.workload is not None
    costly = costly_of(found.workload)
    assert costly is not None
    assert not costly.flags.any()


def test_a_cache_that_broke_a_little_earlier_than_it_was_felt_makes_none_either() -> None:
    """The last quiet requests missed already: what is usually missed looks larger; lengths are as ever."""
    early = np.flatnonzero(~LATE)[-12:]
    cached = np.where(LATE, 0.0, 970.0)
    cached[early] = 0.0
    found = view(cached_tokens=cached)
    assert found.workload is not None
    costly = costly_of(found.workload)
    assert costly is not None
    assert not costly.flags.any()


def paid(gap: float, behind: float, own: float) -> View:
    """Every fourth request is long and takes ``own`` seconds to its first token, the others' ``behind``."""
    giant = LATE & (np.arange(len(EVERY)) % 4 == 0)
    late = np.arange(200) >= 100
    return view(
        {"running_requests": np.full(200, 3.0), "inter_token_seconds_p99": np.where(late, gap, 0.05)},
        tenant=np.where(giant, "t-b", "t-a"),
        cached_tokens=np.where(giant, 0.0, 900.0),
        ttft_seconds=np.where(giant, own, np.where(LATE, behind, 0.2)),
    )


def test_those_behind_pay_for_a_giant_that_takes_many_steps() -> None:
    seen = payers_of(paid(gap=0.5, behind=3.0, own=4.0))
    assert seen is not None
    assert (seen.gap_seconds, seen.wait_seconds) == pytest.approx((0.45, 2.8), rel=0.05)
    assert seen.waiting > 0.9


def test_those_who_stream_pay_for_a_prompt_computed_in_one_step() -> None:
    seen = payers_of(paid(gap=2.0, behind=2.0, own=1.5))
    assert seen is not None
    assert seen.waiting < 0.3


def test_a_queue_alone_makes_nobody_pay_for_a_giant() -> None:
    seen = payers_of(paid(gap=2.0, behind=200.0, own=0.8))
    assert seen is not None
    assert seen.waiting < 0.7


def test_without_gaps_nobody_is_said_to_pay() -> None:
    assert payers_of(view(ttft_seconds=np.where(LATE, 2.0, 0.2))) is None
