"""Shifts in floors, bounds, presence, and what several instances are together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.detectors.cues import degree_of, excluded, falls, flat, rises
from diag.detectors.findings import Spans, fleet_series, judge_series, judge_values
from diag.model import Case, Finding, Series, Stance, Window
from diag.signals import SIGNALS

START, STEP = 1_000_000.0, 5.0
RELATIVE = sorted(name for name, s in SIGNALS.items() if s.relative)
ABSOLUTE = sorted(name for name, s in SIGNALS.items() if not s.relative)


def spans(n: int, at: int, look_back: float = STEP) -> Spans:
    times = START + STEP * np.arange(n)
    return Spans(Window(times[0], times[at - 1]), Window(times[at], times[-1]), STEP, look_back)


def noisy(level: float, n: int, seed: int = 1) -> np.ndarray:
    return level * np.exp(np.random.default_rng(seed).normal(0, 0.02, n))


def found(name: str, before: np.ndarray, during: np.ndarray) -> Finding:
    finding = judge_values(SIGNALS[name], before, during)
    assert finding is not None
    return finding


@pytest.mark.parametrize("name", ["prompt_tokens_per_request_mean", "inter_token_seconds_mean"])
def test_a_relative_effect_counts_in_logarithms(name: str) -> None:
    finding = found(name, noisy(100, 90), noisy(300, 60))
    assert finding.effect == pytest.approx(np.log(3) / SIGNALS[name].floor, rel=0.02)
    assert finding.low is not None
    assert finding.high is not None
    assert 1 < finding.low < np.log(3) / SIGNALS[name].floor < finding.high
    assert finding.moved


def test_an_absolute_effect_counts_in_units() -> None:
    finding = found("kv_cache_usage_ratio", np.full(90, 0.3), np.full(60, 0.9))
    assert finding.effect == pytest.approx(0.6 / SIGNALS["kv_cache_usage_ratio"].floor)
    assert (finding.before, finding.during, finding.peak) == pytest.approx((0.3, 0.9, 0.9))


@given(
    st.sampled_from(ABSOLUTE),
    st.floats(0.01, 1000),
    st.integers(0, 20),
    st.floats(-3, 3),
)
def test_a_unit_changed_with_its_floor_changes_nothing(
    name: str, scale: float, seed: int, moved: float
) -> None:
    signal = SIGNALS[name]
    rng = np.random.default_rng(seed)
    before = signal.floor * (5 + rng.normal(0, 0.2, 90))
    during = signal.floor * (5 + moved + rng.normal(0, 0.2, 60))
    plain = judge_values(signal, before, during)
    scaled = judge_values(replace(signal, floor=signal.floor * scale), before * scale, during * scale)
    assert plain is not None
    assert scaled is not None
    assert scaled.effect == pytest.approx(plain.effect, rel=1e-6, abs=1e-9)
    assert scaled.low == pytest.approx(plain.low, rel=1e-6, abs=1e-6)
    assert scaled.high == pytest.approx(plain.high, rel=1e-6, abs=1e-6)
    assert scaled.before == pytest.approx(scale * plain.before)


@given(st.sampled_from(RELATIVE), st.floats(1e-3, 1e3), st.integers(0, 20), st.floats(0.3, 3))
def test_a_relative_signal_does_not_know_its_unit(name: str, scale: float, seed: int, factor: float) -> None:
    signal = SIGNALS[name]
    before, during = noisy(50, 90, seed), factor * noisy(50, 60, seed + 1)
    plain, scaled = found(name, before, during), judge_values(signal, scale * before, scale * during)
    assert scaled is not None
    assert scaled.effect == pytest.approx(plain.effect, rel=1e-6, abs=1e-9)
    assert scaled.low == pytest.approx(plain.low, rel=1e-6, abs=1e-6)


def test_wandering_is_not_moving() -> None:
    # The quiet level strays by itself as far as the shift: a blind comparison would call it moved.
    slow = 0.3 + 0.25 * np.sin(np.arange(360) / 20)
    finding = found("kv_cache_usage_ratio", slow[:240], slow[240:] + 0.25)
    assert 0.25 / SIGNALS["kv_cache_usage_ratio"].floor > 1
    assert not finding.moved


def test_from_nothing_is_a_move_of_a_known_size() -> None:
    finding = found("prompt_tokens_per_request_mean", np.zeros(90), np.full(60, 500.0))
    assert finding.effect == pytest.approx(4.0 / SIGNALS["prompt_tokens_per_request_mean"].floor)
    assert np.isfinite(finding.before)
    still = found("prompt_tokens_per_request_mean", np.zeros(90), np.zeros(60))
    assert still.effect == 0


def test_presence_is_the_share_of_points_with_data() -> None:
    during = np.full(60, 0.3)
    during[:24] = np.nan
    finding = found("kv_cache_usage_ratio", np.full(90, 0.3), during)
    assert finding.present_ratio == pytest.approx(0.6)
    assert finding.during == pytest.approx(0.3)


@pytest.mark.parametrize("side", ["before", "during"])
def test_a_side_without_data_gives_no_finding(side: str) -> None:
    values = {"before": np.full(90, 0.3), "during": np.full(60, 0.3)}
    values[side] = np.full(60, np.nan)
    assert judge_values(SIGNALS["kv_cache_usage_ratio"], values["before"], values["during"]) is None
    values[side] = np.empty(0)
    assert judge_values(SIGNALS["kv_cache_usage_ratio"], values["before"], values["during"]) is None


def test_a_short_baseline_excludes_nothing() -> None:
    finding = found("kv_cache_usage_ratio", np.full(4, 0.3), np.full(60, 0.3))
    assert (finding.low, finding.high) == (None, None)
    assert not excluded(finding, 1)
    assert not rises("full", finding, "use").decisive


@pytest.mark.parametrize(("hidden", "decisive"), [(0, True), (10, True), (20, False)])
def test_contrary_evidence_is_decisive_only_while_the_signal_was_there(hidden: int, decisive: bool) -> None:
    rng = np.random.default_rng(1)
    during = 0.3 + rng.normal(0, 0.01, 60)
    during[:hidden] = np.nan
    finding = found("kv_cache_usage_ratio", 0.3 + rng.normal(0, 0.01, 90), during)
    evidence = rises("full", finding, "use")
    assert evidence.stance is Stance.AGAINST
    assert evidence.decisive is decisive


def test_contrary_evidence_is_not_decisive_while_the_data_allow_the_effect() -> None:
    rng = np.random.default_rng(3)
    wild = found("kv_cache_usage_ratio", 0.3 + rng.normal(0, 1.0, 90), 0.3 + rng.normal(0, 1.0, 60))
    evidence = rises("full", wild, "use")
    assert evidence.stance is Stance.AGAINST
    assert not evidence.decisive


@given(st.floats(-50, 50), st.floats(0, 20))
def test_a_larger_effect_never_counts_less(effect: float, more: float) -> None:
    finding = Finding("waiting_requests", {}, "requests", 0, 1, effect, None, None, None, 1.0, 1)
    larger = replace(finding, effect=effect + more)
    assert rises("waiting", larger, "w").degree >= rises("waiting", finding, "w").degree
    assert falls("waiting", larger, "w").degree <= falls("waiting", finding, "w").degree
    assert flat("waiting", larger, "w", sign=1).degree <= flat("waiting", finding, "w", sign=1).degree
    assert 0 <= degree_of(effect) <= 1


def test_the_floor_is_even_odds() -> None:
    assert degree_of(1.0) == 0.5
    assert degree_of(0.0) < 0.05
    assert degree_of(2.0) > 0.95


def test_a_series_is_dated_by_its_own_first_lasting_departure(series: Callable[..., Series]) -> None:
    values = np.concatenate([noisy(0.3, 80), noisy(0.9, 70)])
    # The symptom came twenty points later than the signal.
    finding = judge_series(series("kv_cache_usage_ratio", values), spans(150, 100))
    assert finding is not None
    assert finding.onset == START + 80 * STEP


def test_a_series_that_does_not_move_has_no_onset(series: Callable[..., Series]) -> None:
    finding = judge_series(series("kv_cache_usage_ratio", noisy(0.3, 150)), spans(150, 100))
    assert finding is not None
    assert finding.onset is None


@pytest.mark.parametrize(("sign", "at"), [(1, 90), (-1, 90)])
def test_an_onset_is_looked_for_in_the_direction_of_the_effect(
    sign: int, at: int, series: Callable[..., Series]
) -> None:
    values = 0.5 + np.random.default_rng(1).normal(0, 0.01, 150)
    values[60:70] -= 0.4 * sign
    values[at:] += 0.4 * sign
    finding = judge_series(series("kv_cache_usage_ratio", values), spans(150, 80))
    assert finding is not None
    assert finding.effect * sign > 1
    assert finding.onset == START + at * STEP


def test_look_back_windows_that_straddle_the_onset_are_left_out(series: Callable[..., Series]) -> None:
    # A minute of look-back at 5 s: the first twelve points still hold the time before.
    values = np.concatenate([np.full(90, 0.2), np.linspace(0.2, 0.8, 12), np.full(48, 0.8)])
    wide = judge_series(series("kv_cache_usage_ratio", values), spans(150, 90, 60.0))
    assert wide is not None
    assert wide.during == pytest.approx(0.8)
    assert spans(150, 90, 60.0).settled.start == START + 90 * STEP + 60
    # An incident shorter than that is taken whole.
    assert spans(95, 90, 60.0).settled == spans(95, 90, 60.0).incident


def test_instances_add_rates_and_take_the_fullest_pool(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    a, b = np.array([1.0, 2.0, np.nan, np.nan]), np.array([10.0, np.nan, 30.0, np.nan])
    known = case(
        *(series(name, part, instance=i)
          for name in ("running_requests", "kv_cache_usage_ratio", "engine_cpu_ratio")
          for i, part in (("a", a), ("b", b)))
    )  # fmt: skip

    def merged(name: str) -> list[float]:
        whole = fleet_series(known, name)
        assert whole is not None
        return np.nan_to_num(whole.values, nan=-1.0).tolist()

    assert merged("running_requests") == [11.0, 2.0, 30.0, -1.0]
    assert merged("kv_cache_usage_ratio") == [10.0, 2.0, 30.0, -1.0]
    assert merged("engine_cpu_ratio") == [5.5, 2.0, 30.0, -1.0]


def test_means_of_instances_are_weighted_by_the_requests_behind_them(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    known = case(
        series("ttft_seconds_mean", [1.0, 1.0, np.nan], instance="busy"),
        series("ttft_seconds_mean", [9.0, 9.0, 9.0], instance="idle"),
        series("first_tokens_per_second", [7.0, 0.0, 7.0], instance="busy"),
        series("first_tokens_per_second", [1.0, 0.0, 1.0], instance="idle"),
    )
    whole = fleet_series(known, "ttft_seconds_mean")
    assert whole is not None
    assert whole.values[0] == pytest.approx(2.0)
    # Without a single request there is no mean.
    assert np.isnan(whole.values[1])
    assert whole.values[2] == 9.0
    chosen = fleet_series(known, "ttft_seconds_mean", ["idle"])
    assert chosen is not None
    assert chosen.values[0] == 9.0
    assert fleet_series(known, "ttft_seconds_mean", ["other"]) is None
    assert fleet_series(known, "waiting_requests") is None
