"""Slowing a recording down: the same factor wherever the time shows, the work untouched."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from diag.model import Floats, Window
from diag.signals.frame import RawSeries
from diag.simulate.parts import Bundle, Record
from diag.simulate.stretch import cut, open_requests, slow_down

START = 1000.0


def bundle(*records: Record, series: Iterable[RawSeries] = ()) -> Bundle:
    meta = {"name": "x", "window": {"from": START, "to": START + 100.0}, "step_seconds": 2, "notes": ""}
    return Bundle(meta, {"engine": tuple(series)}, records, {"logs/vllm.log": b"x", "events.jsonl": b"y"})


def record(at: float, first: float, duration: float) -> Record:
    times = {"ttft_seconds": first, "duration_seconds": duration}
    return {"ts": START + at, "instance": "a:1", "status": "ok", "output_tokens": 9, **times}


def threefold(times: Floats) -> Floats:
    return np.full(times.shape, 3.0)


def test_a_constant_factor_multiplies_a_record() -> None:
    (slow,) = slow_down(bundle(record(5, 0.2, 1.5)), threefold).requests
    assert slow["ttft_seconds"] == pytest.approx(0.6, abs=1e-3)
    assert slow["duration_seconds"] == pytest.approx(4.5, abs=1e-3)


def test_a_request_that_straddles_the_change_is_slow_only_afterwards() -> None:
    def later(times: Floats) -> Floats:
        return np.where(times >= START + 10.0, 2.0, 1.0)

    (slow,) = slow_down(bundle(record(9, 0.5, 4.0)), later).requests
    assert slow["ttft_seconds"] == pytest.approx(0.5, abs=1e-3)
    # One second at full speed, the remaining three seconds of work at half of it.
    assert slow["duration_seconds"] == pytest.approx(7.0, abs=0.3)


def test_what_would_end_after_the_recording_is_unknown() -> None:
    (slow,) = slow_down(bundle(record(95, 0.5, 4.0)), threefold).requests
    assert slow["ttft_seconds"] == pytest.approx(1.5, abs=1e-3)
    assert not {"duration_seconds", "status", "output_tokens"} & slow.keys()


def test_running_requests_are_counted_from_the_stretched_records() -> None:
    times = START + np.array([0.0, 2.0, 4.0, 6.0])
    labels = {"__name__": "vllm:num_requests_running", "instance": "a:1"}
    gauge = RawSeries(labels, times, np.zeros(4))
    slow = slow_down(bundle(record(1, 0.1, 1.5), record(3, 0.1, 0.5), series=[gauge]), threefold)
    (running,) = slow.series("vllm:num_requests_running")
    assert running.values.tolist() == [0.0, 1.0, 2.0, 0.0]


def test_token_counters_stay_and_logs_go() -> None:
    counter = RawSeries(
        {"__name__": "vllm:prompt_tokens_total", "instance": "a:1"}, np.array([START]), np.array([7.0])
    )
    slow = slow_down(bundle(series=[counter]), threefold)
    assert next(slow.series("vllm:prompt_tokens_total")).values.tolist() == [7.0]
    assert set(slow.files) == {"events.jsonl"}


def test_slower_steps_carry_more_tokens_each(histogram_series: Callable[..., list[RawSeries]]) -> None:
    family = "vllm:iteration_tokens_total"
    steps = histogram_series(family, [1.0, 8.0, 16.0, 64.0], [[2.0] * 30, [4.0] * 30])
    slow = slow_down(bundle(series=steps), threefold)
    total, count = next(slow.series(f"{family}_sum")), next(slow.series(f"{family}_count"))
    assert total.values[-1] == pytest.approx(180.0)
    assert count.values[-1] == pytest.approx(20.0)


def test_cut_moves_the_window_and_drops_what_lies_outside() -> None:
    inside = cut(bundle(record(5, 0.1, 1.0), record(50, 0.1, 1.0)), Window(START + 20, START + 60))
    assert [row["ts"] for row in inside.requests] == [START + 50]
    assert inside.window.start == START + 20


def test_open_requests_tells_instances_apart() -> None:
    rows = [record(1, 0.1, 5.0), {**record(1, 0.1, 5.0), "instance": "b:1"}]
    assert open_requests(rows, "a:1", START + np.array([0.0, 3.0, 9.0])).tolist() == [0.0, 1.0, 0.0]
