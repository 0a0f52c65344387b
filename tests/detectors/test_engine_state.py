"""What an engine's own causes leave behind: silence, floors, steps at a size, slots, held-up answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.detectors.batches import batches_of, equal_ratio, pace_since
from diag.detectors.findings import Spans
from diag.detectors.holdups import held_up_by
from diag.detectors.pool import floor_of, pool_tokens
from diag.detectors.rhythm import rhythm_of
from diag.detectors.slots import parked_slots
from diag.detectors.standstill import asked_of, held_up, standstills
from diag.detectors.view import View, view_of
from diag.model import Case, Fact, Floats, Series, Window
from diag.records.cohorts import Requests, from_frame
from diag.records.record import build_frame

START, STEP, N, AT = 1_000_000.0, 5.0, 240, 120
POINTS = np.arange(N)
Make = Callable[..., Case]
MakeSeries = Callable[..., Series]


def level(before: float, during: float) -> Floats:
    return np.where(POINTS < AT, before, during).astype(np.float64)


def look(case: Case) -> View:
    spans = Spans(
        Window(START, START + STEP * (AT - 1)), Window(START + STEP * AT, case.window.end), STEP, STEP
    )
    return view_of(case, spans, (), None)


def records(**columns: list[float] | list[str]) -> Requests:
    frame, _ = build_frame(columns, len(columns["ts"]))
    return from_frame(frame, START + STEP * N)


@pytest.fixture
def engine(series: MakeSeries, case: Make) -> Callable[..., View]:
    """A view of one engine with these signals."""

    def make(facts: tuple[Fact, ...] = (), **signals: Floats) -> View:
        return look(case(*(series(name, values) for name, values in signals.items()), facts=facts))

    return make


def test_silence_with_requests_held_is_a_standstill(engine: Callable[..., View]) -> None:
    view = engine(
        generation_tokens_per_second=level(50, 0),
        running_requests=level(4, 0),
        waiting_requests=np.maximum(POINTS - AT, 0.0),
    )
    (still,) = standstills(view)
    assert still.window.start == pytest.approx(START + STEP * (AT - 1), abs=2 * STEP)
    assert still.running == 0
    assert still.gauges_move
    assert not still.ended


def test_gauges_that_stand_still_tell_of_a_dead_step_loop(engine: Callable[..., View]) -> None:
    view = engine(
        generation_tokens_per_second=np.where((POINTS >= AT) & (POINTS < AT + 60), 0.0, 50.0),
        running_requests=np.full(N, 6.0), waiting_requests=level(0, 3),
    )  # fmt: skip
    (still,) = standstills(view)
    assert not still.gauges_move
    assert still.ended


@pytest.mark.parametrize(
    ("tokens", "running"),
    [
        (level(50, 0), level(4, 0)),  # nobody asks
        (np.where((POINTS >= AT) & (POINTS < AT + 6), 0.0, 50.0), np.full(N, 4.0)),  # one long prefill
        (level(50, 50), np.full(N, 4.0)),
    ],
)
def test_an_idle_engine_or_a_long_prefill_is_none(
    tokens: Floats, running: Floats, engine: Callable[..., View]
) -> None:
    assert standstills(engine(generation_tokens_per_second=tokens, running_requests=running)) == ()


def test_a_lost_scrape_neither_ends_nor_makes_a_silence(engine: Callable[..., View]) -> None:
    tokens = level(50, 0)
    tokens[[AT + 10, AT + 40]] = np.nan
    (still,) = standstills(engine(generation_tokens_per_second=tokens, running_requests=np.full(N, 4.0)))
    assert still.window.seconds > 500


def test_who_asked_in_a_silence_and_who_was_there(engine: Callable[..., View]) -> None:
    (still,) = standstills(
        engine(generation_tokens_per_second=level(50, 0), running_requests=np.full(N, 4.0))
    )
    at = START + STEP * AT
    asked = records(
        ts=[at - 400, at - 3, at + 50, at + 60, at + 70], ttft_seconds=[0.2, np.nan, np.nan, 1.0, np.nan],
        duration_seconds=[2.0, np.nan, 30.0, 3.0, np.nan], status=["ok", "", "aborted", "ok", ""],
    )  # fmt: skip
    assert asked_of(asked, still, STEP) == (3, 1)
    assert held_up(asked, still).tolist() == [False, True, True, True, True]


def test_a_pool_that_fills_beyond_its_work_has_a_rising_floor(engine: Callable[..., View]) -> None:
    work = 4.0 + np.sin(POINTS / 5.0)
    leaked = np.maximum(POINTS - 60, 0) * 0.004
    floor = floor_of(engine(running_requests=work, kv_cache_usage_ratio=0.05 * work + leaked), "e0")
    assert floor is not None
    assert floor.unaccounted > 0.4
    assert floor.rising == 1
    assert floor.onset is not None
    assert floor.idle is None


def test_a_pool_that_follows_its_work_has_none(engine: Callable[..., View]) -> None:
    work = np.linspace(2.0, 18.0, N)
    floor = floor_of(engine(running_requests=work, kv_cache_usage_ratio=0.05 * work), "e0")
    assert floor is not None
    assert floor.late > 2 * floor.early
    assert floor.unaccounted == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("left", [0.0, 0.4])
def test_what_stays_with_nothing_running(left: float, engine: Callable[..., View]) -> None:
    busy = POINTS % 12 < 8
    usage = np.where(busy, 0.3, 0.0) + left
    floor = floor_of(engine(running_requests=np.where(busy, 5.0, 0.0), kv_cache_usage_ratio=usage), "e0")
    assert floor is not None
    assert floor.idle == pytest.approx(left)


def test_the_pool_is_known_from_blocks_or_tokens(engine: Callable[..., View]) -> None:
    def stated(**facts: str) -> tuple[Fact, ...]:
        return tuple(Fact(name, value, {"instance": "e0"}, "log") for name, value in facts.items())

    running = np.full(N, 1.0)
    assert pool_tokens(engine(stated(kv_capacity_tokens="5000"), running_requests=running), "e0") == 5000
    blocks = stated(kv_blocks="100", block_size_tokens="16")
    assert pool_tokens(engine(blocks, running_requests=running), "e0") == 1600
    assert pool_tokens(engine(running_requests=running), "e0") is None


def batch(step_at: float, factor: float) -> tuple[Floats, Floats]:
    running = level(20, 36) + 6 * np.sin(POINTS / 3.0)
    noise = np.random.default_rng(1).normal(0, 0.02, N)
    return running, (0.015 + 0.0003 * running) * np.where(running > step_at, factor, 1.0) * np.exp(noise)


@pytest.mark.parametrize("size", [28.0, None])
def test_a_step_at_a_size_is_found_and_measured(size: float | None, engine: Callable[..., View]) -> None:
    running, seconds = batch(28, 2.0)
    found = batches_of(engine(running_requests=running, inter_token_seconds_mean=seconds), "e0", size)
    assert found is not None
    assert found.size == pytest.approx(28, abs=3)
    assert 1.6 < found.jump < 2.8  # beyond the step the slope doubles, too
    assert found.stands_out > 6
    assert found.beyond > 0.8 > 0.2 > found.beyond_before


def test_a_straight_line_has_no_step(engine: Callable[..., View]) -> None:
    running, seconds = batch(28, 1.0)
    found = batches_of(engine(running_requests=running, inter_token_seconds_mean=seconds), "e0", 28.0)
    assert found is not None
    assert found.jump == pytest.approx(1.0, abs=0.1)


def test_prefill_that_comes_with_the_batch_is_no_step(engine: Callable[..., View]) -> None:
    running, seconds = batch(28, 1.0)
    prefill = np.where(running > 28, 4000.0, 500.0) * np.exp(np.random.default_rng(2).normal(0, 0.2, N))
    view = engine(
        running_requests=running, inter_token_seconds_mean=seconds + 1e-5 * prefill,
        computed_prompt_tokens_per_second=prefill,
    )  # fmt: skip
    found = batches_of(view, "e0", 28.0)
    assert found is not None
    assert found.jump == pytest.approx(1.0, abs=0.15)


def test_a_slower_start_is_slower_at_equal_batch(engine: Callable[..., View]) -> None:
    running, seconds = batch(1e9, 1.0)
    view = engine(running_requests=running, inter_token_seconds_mean=seconds * level(1.0, 1.8))
    found = pace_since(view, "e0", START + STEP * AT)
    assert found is not None
    assert found[0] == pytest.approx(1.8, abs=0.3)
    assert pace_since(view, "e0", START + STEP * (N - 2)) is None
    even = engine(running_requests=np.full(N, 8.0), inter_token_seconds_mean=level(0.02, 0.05))
    assert equal_ratio(even, "e0", "inter_token_seconds_mean") == pytest.approx(2.5)
    apart = engine(running_requests=level(8, 64), inter_token_seconds_mean=level(0.02, 0.05))
    assert equal_ratio(apart, "e0", "inter_token_seconds_mean") is None


def test_parked_requests_hold_slots(engine: Callable[..., View]) -> None:
    view = engine(
        running_requests=level(6, 2), waiting_requests=level(0, 20), waiting_deferred_requests=level(0, 14)
    )
    slots = parked_slots(view)
    assert slots is not None
    assert (slots.limit, slots.parked, slots.waiting) == (16, 14, 6)
    assert slots.binds
    assert parked_slots(engine(running_requests=level(6, 2), waiting_requests=level(0, 20))) is None


def test_gaps_keep_time_with_prefill_or_do_not(engine: Callable[..., View]) -> None:
    bursts = np.where(POINTS % 10 < 3, 9000.0, 300.0)
    noise = np.random.default_rng(3).normal(1.0, 0.1, N)
    keeping = engine(prompt_tokens_per_second=bursts, inter_token_seconds_p99=0.05 + bursts / 1e4 * noise)
    seen = rhythm_of(keeping, "prompt_tokens_per_second", "inter_token_seconds_p99")
    assert seen is not None
    assert seen.keeps_time
    other = engine(prompt_tokens_per_second=bursts, inter_token_seconds_p99=0.5 * noise)
    seen = rhythm_of(other, "prompt_tokens_per_second", "inter_token_seconds_p99")
    assert seen is not None
    assert not seen.keeps_time


def paid(cost: float, count: int = 400) -> tuple[Requests, Floats]:
    """Answers of 20 ms a token, held up ``cost`` seconds by each marked request that begins beside them."""
    rng = np.random.default_rng(4)
    ts = np.sort(rng.uniform(START, START + 1000, count))
    marked = (rng.random(count) < 0.3).astype(np.float64)
    tokens = rng.integers(50, 250, count).astype(np.float64)
    begun = np.sort(ts[marked > 0] + 0.1)
    ends = ts + 0.2 + 0.02 * (tokens - 1)
    beside = np.searchsorted(begun, ends) - np.searchsorted(begun, ts + 0.2, side="right")
    decode = (0.02 * (tokens - 1) + cost * beside) * np.exp(rng.normal(0, 0.05, count))
    waits, lasts = [0.2] * count, list(0.2 + decode)
    asked = records(ts=list(ts), ttft_seconds=waits, output_tokens=list(tokens), duration_seconds=lasts)
    return asked, marked


def test_what_a_marked_request_costs_those_beside_it() -> None:
    requests, marked = paid(0.6)
    everyone = np.ones(len(requests), dtype=bool)
    found = held_up_by(requests, everyone, marked, 1 - marked)
    assert found is not None
    ours, others = found
    assert ours.seconds == pytest.approx(0.6, rel=0.3)
    assert ours.sure
    assert abs(others.seconds) < 0.3 * ours.seconds
    assert 0.05 < ours.share < 0.6


def test_who_costs_nothing_is_not_accused() -> None:
    requests, marked = paid(0.0)
    found = held_up_by(requests, np.ones(len(requests), dtype=bool), marked)
    assert found is not None
    assert not found[0].sure
    few = np.arange(len(requests)) < 20
    assert held_up_by(requests, few, marked) is None
    assert held_up_by(requests, ~few, np.zeros(len(requests))) is None
