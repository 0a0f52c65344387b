"""Each rival finds what it is made to find, and misses what it is known to miss."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from diag.accuracy.baselines import BASELINES, FSE_BARO, groups, ranked_signals
from diag.accuracy.columns import Columns, columns_of
from diag.accuracy.reading import case_at
from diag.accuracy.suspects import SUSPECTS, suspects_of
from diag.accuracy.thresholds import RULES, checked
from diag.errors import DiagError
from diag.hypotheses import CARDS
from diag.model import Case, Floats, Series, Window
from diag.signals import SIGNALS

OWN = [name for name in BASELINES if name not in FSE_BARO]


def _columns(**after: Floats) -> Columns:
    rng = np.random.default_rng(0)
    before = {name: 10 + rng.normal(0, 1, 80) for name in after}
    symptom = np.concatenate([rng.normal(1, 0.1, 80), rng.normal(5, 0.5, 40)])
    return Columns(0.0, before, dict(after), symptom)


def _noise(mean: float, seed: int, sigma: float = 1.0) -> Floats:
    return mean + np.random.default_rng(seed).normal(0, sigma, 40)


@pytest.mark.parametrize("method", [name for name in OWN if name != "random"])
def test_a_plain_rise_comes_first(method: str) -> None:
    columns = _columns(
        gpu_power_watts=_noise(30, 1), node_load1=_noise(10, 2), running_requests=_noise(10, 3)
    )
    assert ranked_signals(method, columns, "c")[0] == "gpu_power_watts"


def test_the_one_sided_rule_is_blind_to_a_fall() -> None:
    columns = _columns(gpu_sm_clock_hertz=_noise(3, 1), node_load1=_noise(10, 2))
    assert ranked_signals("n-sigma", columns, "c")[-1] == "gpu_sm_clock_hertz"
    assert ranked_signals("n-sigma two-sided", columns, "c")[0] == "gpu_sm_clock_hertz"
    assert ranked_signals("relative volume", columns, "c")[0] == "gpu_sm_clock_hertz"


def test_a_series_that_never_moved_before_has_a_finite_score() -> None:
    columns = Columns(
        0.0,
        {"preemptions_per_second": np.zeros(80), "node_load1": np.ones(80)},
        {"preemptions_per_second": np.full(40, 0.3), "node_load1": np.ones(40)},
        np.zeros(120),
    )
    for method in OWN:
        assert set(ranked_signals(method, columns, "c")) == set(columns.before)
    assert ranked_signals("relative volume", columns, "c")[0] == "preemptions_per_second"


def test_the_random_rival_is_random_over_cases_and_the_same_within_one() -> None:
    columns = _columns(**{name: _noise(10, i) for i, name in enumerate(list(SUSPECTS)[:12])})
    orders = {ranked_signals("random", columns, f"case {i}") for i in range(20)}
    assert len(orders) > 15
    assert ranked_signals("random", columns, "x") == ranked_signals("random", columns, "x")


def test_fse_baro_runs_as_shipped() -> None:
    columns = _columns(
        gpu_power_watts=_noise(30, 1), node_load1=_noise(10, 2), gpu_sm_clock_hertz=_noise(3, 3)
    )
    for method in FSE_BARO:
        found = ranked_signals(method, columns, "c")
        assert found[0] == "gpu_power_watts"
        assert found[-1] == "gpu_sm_clock_hertz"


def test_fse_baro_fails_loudly_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "baro.root_cause_analysis", None)
    with pytest.raises(DiagError, match="fse-baro"):
        ranked_signals(FSE_BARO[0], _columns(node_load1=_noise(10, 2)), "c")


def test_signals_that_name_nothing_new_are_passed_over() -> None:
    found = groups(
        ("ttft_seconds_mean", "gpu_temperature_celsius", "gpu_thermal_throttle_ratio", "node_load1")
    )
    assert found[0] == ("thermal_throttle",)
    assert "host_cpu_starvation" in found[1]
    assert len(found) == 2


def test_suspects_are_signals_and_causes_that_exist() -> None:
    unknown = {cause for causes in SUSPECTS.values() for cause in causes} - set(CARDS)
    assert unknown == set()
    assert {name for name in SUSPECTS if ":" not in name} <= set(SIGNALS)
    assert {rule.signal for rule in RULES} <= set(SIGNALS)


def test_every_cause_that_a_metric_can_show_stands_for_some_metric() -> None:
    shown = {cause for causes in SUSPECTS.values() for cause in causes}
    assert set(CARDS) - shown - {"unknown", "gpu_link_degraded"} == set()
    assert suspects_of("gpu_pcie_replays_per_second") == ("gpu_link_degraded",)


def test_gaps_are_filled_without_looking_over_the_onset() -> None:
    times = np.arange(0.0, 1500.0, 15.0)
    values = np.where(times < 900, 10.0, 100.0)
    values[57:63] = np.nan  # around the onset at index 60
    series = Series("node_load1", {"node": "n"}, times, values, "x")
    empty = Series("gpu_power_watts", {"gpu": "0"}, times, np.where(times < 900, 1.0, np.nan), "x")
    case = Case(Window(0, 1485), 15.0, {"node_load1": (series,), "gpu_power_watts": (empty,)})
    columns = columns_of(case, 900.0)
    assert set(columns.before) == {"node_load1"}
    assert set(columns.before["node_load1"]) == {10.0}
    assert set(columns.after["node_load1"]) == {100.0}


def test_the_instance_that_moved_most_stands_for_its_signal() -> None:
    times = np.arange(0.0, 1500.0, 15.0)
    rng = np.random.default_rng(0)
    calm, loud = (rng.normal(10, 1, len(times)) + np.where(times >= 900, rise, 0.0) for rise in (0, 20))
    series = tuple(Series("node_load1", {"node": n}, times, v, "x") for n, v in (("a", calm), ("b", loud)))
    columns = columns_of(Case(Window(0, 1485), 15.0, {"node_load1": series}), 900.0)
    assert np.array_equal(columns.whole("node_load1"), loud)


def test_a_request_log_becomes_columns(incidents: Path) -> None:
    columns = columns_of(case_at(incidents / "load_burst"), 1795989516.0)
    assert (
        columns.after["records:arrivals"][-20:].mean() > 3 * columns.before["records:arrivals"][-20:].mean()
    )
    assert "records:gap" in columns.before
    assert "load_burst" in groups(ranked_signals("mean shift", columns, "c"))[0]


def test_the_checker_reports_limits_passed_by_most_first() -> None:
    times = np.arange(0.0, 1500.0, 15.0)

    def series(name: str, value: float) -> tuple[Series, ...]:
        return (Series(name, {"instance": "a"}, times, np.full(len(times), value), "x"),)

    def fired(**values: float) -> tuple[tuple[str, ...], ...]:
        return checked(Case(Window(0, 1485), 15.0, {name: series(name, v) for name, v in values.items()}))

    assert fired(kv_cache_usage_ratio=0.95, waiting_requests=50.0)[0] == ("load_burst", "sequence_limit")
    assert fired(prefix_cache_hit_ratio=0.1)[0][0] == "prefix_cache_off"
    assert fired(kv_cache_usage_ratio=0.5, waiting_requests=0.0) == ()
    assert fired() == ()
