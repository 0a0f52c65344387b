"""What is an episode, since when, and what is only a spike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.detectors.episodes import find_episode, symptom_of, weight_of
from diag.detectors.symptoms import LIMITS, Course, metric_courses
from diag.model import Case, Floats, Series, Window

N, STEP, START = 120, 5.0, 1_000_000.0
TIMES: Floats = START + STEP * np.arange(N, dtype=np.float64)
WINDOW = Window(TIMES[0], TIMES[-1])


def course(values: np.ndarray, signal: str = "ttft_seconds_mean", overlap: int = 1) -> Course:
    return Course(signal, {"instance": "e0"}, "seconds", TIMES[: len(values)], values, overlap)


def quiet(level: float = 0.2, seed: int = 1) -> np.ndarray:
    return level * np.exp(np.random.default_rng(seed).normal(0, 0.05, N))


def test_a_step_is_an_episode_from_where_it_steps() -> None:
    values = quiet()
    values[60:] *= 10
    found = find_episode(course(values), WINDOW)
    assert found is not None
    assert found.onset == TIMES[60]
    assert found.end == WINDOW.end
    assert found.before == pytest.approx(0.2, rel=0.05)
    assert found.during == pytest.approx(2.0, rel=0.05)
    assert found.strength > 1
    assert 0.2 < found.threshold < 2.0
    told = symptom_of(found)
    assert (told.signal, told.unit, told.onset) == ("ttft_seconds_mean", "seconds", TIMES[60])
    assert told.scope == {"instance": "e0"}


def test_a_ramp_is_dated_back_to_where_it_began() -> None:
    values = quiet()
    values[60:] += 0.05 * np.arange(N - 60)
    found = find_episode(course(values), WINDOW)
    assert found is not None
    noticed = TIMES[60] + 6 * STEP  # +0.3 s is what the limit asks for
    assert TIMES[60] <= found.onset < noticed
    assert found.end == WINDOW.end


def test_a_recovery_ends_the_episode() -> None:
    values = quiet()
    values[50:70] *= 10
    found = find_episode(course(values), WINDOW)
    assert found is not None
    assert (found.onset, found.end) == (TIMES[50], TIMES[69])
    assert found.during == pytest.approx(2.0, rel=0.05)


def test_an_episode_that_recovers_shortly_before_the_end_lasts_to_the_end() -> None:
    values = quiet()
    values[60:112] *= 10
    found = find_episode(course(values), WINDOW)
    assert found is not None
    assert found.end == WINDOW.end


@pytest.mark.parametrize("at", [5, 60, 119])
@pytest.mark.parametrize("width", [1, 2])
def test_a_spike_is_no_episode(at: int, width: int) -> None:
    values = quiet()
    values[at : at + width] *= 100
    assert find_episode(course(values), WINDOW) is None


def test_one_slow_request_seen_by_a_long_look_back_is_no_episode() -> None:
    # One sample stands in as many grid points as look-back windows overlap.
    values = quiet()
    values[60:66] *= 20
    assert find_episode(course(values, overlap=6), WINDOW) is None
    values[60:80] *= 20
    assert find_episode(course(values, overlap=6), WINDOW) is not None


@pytest.mark.parametrize(("level", "factor"), [(0.020, 2.0), (0.1, 3.0), (10.0, 1.3)])
def test_what_no_user_feels_is_no_episode(level: float, factor: float) -> None:
    # Too few seconds, whatever the ratio; too small a ratio, whatever the seconds.
    values = quiet(level)
    values[60:] *= factor
    assert find_episode(course(values), WINDOW) is None


def test_getting_better_is_no_episode() -> None:
    values = quiet(2.0)
    values[60:] /= 10
    assert find_episode(course(values), WINDOW) is None


def test_a_marked_baseline_is_believed_wherever_it_lies() -> None:
    # Bad from the first point on, quiet at the end: only the mark can tell.
    values = quiet()
    values[:80] *= 10
    assert find_episode(course(values), WINDOW) is None
    found = find_episode(course(values), WINDOW, Window(TIMES[90], TIMES[110]))
    assert found is not None
    assert found.onset == TIMES[0]
    assert found.before == pytest.approx(0.2, rel=0.05)
    assert found.end == TIMES[79]


def test_points_without_data_neither_hide_nor_make_an_episode() -> None:
    values = quiet()
    values[60:] *= 10
    holes = values.copy()
    holes[::3] = np.nan
    found = find_episode(course(holes), WINDOW)
    assert found is not None
    assert found.onset == pytest.approx(TIMES[60], abs=2 * STEP)
    assert find_episode(course(np.full(N, np.nan)), WINDOW) is None
    assert find_episode(course(np.where(np.arange(N) < 5, 0.2, np.nan)), WINDOW) is None


def test_only_the_window_is_looked_at() -> None:
    values = quiet()
    values[60:] *= 10
    assert find_episode(course(values), Window(TIMES[0], TIMES[58])) is None


@pytest.mark.parametrize("signal", sorted(LIMITS))
def test_every_symptom_has_a_limit_that_can_be_passed(signal: str) -> None:
    limit = LIMITS[signal]
    values = np.full(N, 0.01)
    values[60:] += 4 * limit.amount
    found = find_episode(course(values, signal), WINDOW)
    assert found is not None
    assert found.strength >= 1
    values[60:] = 0.01 + 0.9 * limit.amount
    assert find_episode(course(values, signal), WINDOW) is None


@given(st.integers(40, 100), st.floats(4, 50), st.integers(0, 99))
def test_a_worse_step_is_never_weaker(at: int, factor: float, seed: int) -> None:
    values = quiet(seed=seed)
    worse = values.copy()
    values[at:] *= factor
    worse[at:] *= 2 * factor
    found, stronger = find_episode(course(values), WINDOW), find_episode(course(worse), WINDOW)
    assert found is not None
    assert stronger is not None
    assert stronger.strength >= found.strength
    assert found.onset == stronger.onset == TIMES[at]


def test_each_instance_has_its_own_course(series: Callable[..., Series], case: Callable[..., Case]) -> None:
    parts = [
        series("ttft_seconds_mean", quiet(), instance="a"),
        series("ttft_seconds_mean", quiet(), instance="b"),
        series("first_tokens_per_second", np.full(N, 3.0), instance="b"),
    ]
    courses = list(metric_courses(case(*parts), 30.0))
    assert [c.scope["instance"] for c in courses] == ["a", "b"]
    assert courses[0].weights is None
    assert courses[1].weights is not None
    assert courses[1].weights[0] == 3.0
    assert courses[0].overlap == 6


def test_answers_without_an_end_are_counted_by_instance(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    http, done = np.full(N, 4.0), np.full(N, 4.0)
    done[60:] = 1.0
    http[110:] = 0.0
    parts = [
        series("http_requests_per_second", http, instance="a"),
        series("finished_requests_per_second", done, instance="a"),
        series("finished_requests_per_second", done, instance="b"),
    ]
    (left,) = metric_courses(case(*parts), 30.0)
    assert left.signal == "unfinished_ratio"
    assert left.values[0] == 0
    assert left.values[60] == 0.75
    # Nobody asked: an unknown share, not a share of zero.
    assert np.isnan(left.values[110])


def test_an_engine_that_holds_requests_and_serves_none_stands_still(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    tokens, held = np.full(N, 90.0), np.full(N, 2.0)
    tokens[80:] = 0.0
    idle_tokens, idle = np.zeros(N), np.zeros(N)
    parts = [
        series("running_requests", held, instance="a"),
        series("generation_tokens_per_second", tokens, instance="a"),
        series("running_requests", idle, instance="b"),
        series("generation_tokens_per_second", idle_tokens, instance="b"),
    ]
    stopped, resting = metric_courses(case(*parts), 30.0)
    found = find_episode(stopped, WINDOW)
    assert found is not None
    # The first silent look-back of 30 s ends at point 80: its silence began 25 s earlier, one step in.
    assert found.onset == TIMES[80] - 30.0 + STEP
    assert find_episode(resting, WINDOW) is None


def test_a_page_that_repeats_itself_says_nothing_of_the_engine(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    tokens = np.full(N, 90.0)
    tokens[80:] = 0.0
    parts = [
        series("running_requests", np.full(N, 2.0), instance="a"),
        series("generation_tokens_per_second", tokens, instance="a"),
    ]
    stalled = dataclasses.replace(case(*parts), page_stalls={"a": (Window(TIMES[80], TIMES[-1]),)})
    (course_of_a,) = metric_courses(stalled, 30.0)
    assert np.isnan(course_of_a.values[80:]).all()
    assert find_episode(course_of_a, WINDOW) is None


def test_a_level_that_rises_though_its_points_overlap_is_an_episode() -> None:
    # Slowest first tokens of few requests: hardly a point is beyond all before, and the level is another one.
    wide = np.exp(np.random.default_rng(5).normal(0, 0.5, 360))
    times: Floats = START + STEP * np.arange(360, dtype=np.float64)
    wide[240:] *= 2.0
    found = find_episode(
        Course("ttft_seconds_p95", {"instance": "e0"}, "seconds", times, wide, 1), Window(times[0], times[-1])
    )
    assert found is not None
    assert abs(found.onset - times[240]) <= 3 * STEP
    assert found.strength >= 1
    same = np.exp(np.random.default_rng(5).normal(0, 0.5, 360))
    level = Course("ttft_seconds_p95", {"instance": "e0"}, "seconds", times, same, 1)
    assert find_episode(level, Window(times[0], times[-1])) is None


def test_rare_waits_many_times_as_long_as_any_before_are_an_episode() -> None:
    values = np.zeros(N)
    values[[62, 75, 83, 97, 104]] = [3.6, 8.2, 4.3, 9.4, 3.7]
    found = find_episode(course(values, "gateway_wait_seconds_mean"), WINDOW)
    assert found is not None
    assert found.onset == TIMES[62]
    # Two of them, or one smeared over a look-back, may be chance; and so may what was seen before.
    values[[83, 97, 104]] = 0
    assert find_episode(course(values, "gateway_wait_seconds_mean"), WINDOW) is None
    smeared = np.zeros(N)
    smeared[62:68] = 8.0
    assert find_episode(course(smeared, "gateway_wait_seconds_mean", overlap=6), WINDOW) is None
    known = np.zeros(N)
    known[[12, 62, 75, 83, 97, 104]] = 4.0
    assert find_episode(course(known, "gateway_wait_seconds_mean"), WINDOW) is None


@pytest.mark.parametrize("signal", ["standstill_ratio", "unreachable_ratio"])
def test_what_cannot_be_chance_needs_only_be_seen(signal: str) -> None:
    values = np.zeros(N)
    values[60:63] = 1.0
    found = find_episode(course(values, signal), WINDOW)
    assert found is not None
    assert found.onset == TIMES[60]
    assert found.strength >= 1
    values[61:63] = 0.0
    assert find_episode(course(values, signal), WINDOW) is None


def test_evidence_adds_up_and_one_course_cannot_say_everything() -> None:
    values = quiet()
    values[60:] *= 10
    found = find_episode(course(values), WINDOW)
    assert found is not None
    assert weight_of([]) == 0
    assert weight_of([found, found]) == pytest.approx(2 * weight_of([found]))
    loud = dataclasses.replace(found, score=1e9, strength=1e9)
    assert weight_of([loud]) == pytest.approx(75.0)
