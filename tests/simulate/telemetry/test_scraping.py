"""What a store holds of a page: counters that reset, scrapes that fail, pages that lie."""

from __future__ import annotations

import numpy as np
import pytest

from diag.simulate.parts import Bundle
from diag.simulate.plan import Degradation, Gpu, Replica, Restart, Settings, Shown
from diag.simulate.telemetry import show

_COUNTED = ("_total", "_bucket", "_count", "_sum", "_seconds")
_GENERATED = "vllm:generation_tokens_total"


def _one(bundle: Bundle, name: str, instance: str = "vllm-0:8000"):
    return next(series for series in bundle.series(name) if series.labels["instance"] == instance)


def _restarted(run_of, **restart):
    replica = Replica("vllm-0:8000", restarts=(Restart(700.0, down_seconds=60.0, **restart),))
    return run_of(replicas=(replica,))


def test_counters_never_fall_without_a_restart(run_of):
    seen = 0
    for series in show(run_of(shown=Shown(gpu="llmdiag"))).series():
        name = series.labels["__name__"]
        backend = series.labels["job"] == "chat-backend"  # it is killed once
        if name.endswith(_COUNTED) and "start_time" not in name and not backend:
            if "_duration_" in name or "clock_event_active" in name:
                continue
            seen += 1
            assert (np.diff(series.values) >= 0.0).all(), series.labels
    assert seen > 500


def test_histograms_are_cumulative_over_bounds_and_agree_with_their_count(run_of):
    bundle = show(_restarted(run_of))
    for family in ("vllm:time_to_first_token_seconds", "vllm:request_prompt_tokens"):
        rows = np.array([series.values for series in bundle.series(f"{family}_bucket")])
        assert (np.diff(rows, axis=0) >= 0.0).all()
        assert np.array_equal(rows[-1], _one(bundle, f"{family}_count").values)


def test_a_restart_takes_the_page_away_and_starts_the_counters_anew(run_of):
    run = _restarted(run_of)
    bundle = show(run)
    times, start = run.times, run.plan.start
    up = _one(bundle, "up").values
    assert np.array_equal(up == 0.0, (times >= 700.0) & (times < 760.0))
    generated = _one(bundle, _GENERATED)
    assert not ((generated.times > start + 700.5) & (generated.times < start + 759.5)).any()
    after = generated.values[generated.times > start + 759.5]
    truth = run.engines[0].counters["generation_tokens"]
    here = truth[times >= 760.0]
    assert np.allclose(np.diff(after), np.diff(here), atol=1.01)
    assert 0.0 <= after[0] < 60.0 * 300.0
    began = _one(bundle, "process_start_time_seconds").values
    assert np.unique(began).size == 2
    assert start + 700.0 < began[-1] < start + 760.0


def test_settings_change_with_a_restart(run_of):
    bundle = show(_restarted(run_of, settings=Settings(kv_blocks=5000)))
    found = {
        series.labels["num_gpu_blocks"]: (series.times[0], series.times[-1])
        for series in bundle.series("vllm:cache_config_info")
    }
    assert set(found) == {"20000", "5000"}
    assert found["20000"][1] < found["5000"][0]


def test_an_engine_that_never_comes_back_leaves_up_at_zero(run_of):
    run = run_of(replicas=(Replica("vllm-0:8000"),))
    run.restarts = [("vllm-0:8000", 700.0, np.inf)]
    bundle = show(run)
    assert _one(bundle, "up").values[-1] == 0.0
    assert _one(bundle, _GENERATED).times[-1] < run.plan.start + 700.5


def test_counters_hold_what_was_counted_before_the_window(run_of):
    run = run_of(replicas=(Replica("vllm-0:8000", uptime_seconds=3600.0),))
    first = _one(show(run), _GENERATED).values[0]
    assert first == pytest.approx(300.0 * 3570.0, rel=0.05)


def test_a_gap_has_no_scrapes_at_all(run_of):
    run = run_of(degradation=Degradation(gaps=((600.0, 780.0),)))
    for name in ("up", _GENERATED):
        times = _one(show(run), name).times - run.plan.start
        assert not ((times > 600.5) & (times < 779.5)).any()
        assert times[-1] == pytest.approx(1800.0, abs=0.5)


def test_lost_scrapes_leave_up_at_zero_and_nothing_else(run_of):
    bundle = show(run_of(degradation=Degradation(lost_ratio=0.2)))
    up, took = _one(bundle, "up"), _one(bundle, "scrape_duration_seconds")
    lost = up.times[up.values == 0.0]
    assert 0.08 < lost.size / up.times.size < 0.35
    assert not np.isin(lost, _one(bundle, _GENERATED).times).any()
    assert (took.values[up.values == 0.0] == 10.0).all()


def test_a_frozen_page_repeats_itself_while_up_stays(run_of):
    run = run_of(degradation=Degradation(frozen=((600.0, 900.0, "vllm-0:8000"),)))
    bundle = show(run)
    inside = (run.times >= 600.0) & (run.times < 900.0)
    for name in (_GENERATED, "process_cpu_seconds_total", "vllm:num_requests_running"):
        values = _one(bundle, name).values
        assert np.unique(values[inside]).size == 1, name
    assert (_one(bundle, "up").values == 1.0).all()
    moving = _one(bundle, _GENERATED, "vllm-1:8000").values
    assert np.unique(moving[inside]).size > 10
    assert _one(bundle, _GENERATED).values[-1] > _one(bundle, _GENERATED).values[inside][-1]


def test_a_vanished_target_ends(run_of):
    run = run_of(degradation=Degradation(vanished=((600.0, "vllm-0:8000"),)))
    bundle = show(run)
    for name in ("up", _GENERATED):
        assert _one(bundle, name).times[-1] < run.plan.start + 600.0
        assert _one(bundle, name, "vllm-1:8000").times[-1] > run.plan.start + 1790.0


def test_renamed_series_go_on_under_another_name(run_of):
    run = run_of(degradation=Degradation(renamed=((600.0, "vllm-0:8000"),)))
    bundle = show(run)
    old, new = _one(bundle, _GENERATED), _one(bundle, "inference_generation_tokens_total")
    assert old.times[-1] < new.times[0]
    assert old.times.size + new.times.size == run.times.size
    assert new.values[0] >= old.values[-1]
    assert _one(bundle, "process_cpu_seconds_total").times.size == run.times.size


def test_a_page_can_turn_to_nan(run_of):
    run = run_of(degradation=Degradation(nan=((600.0, "vllm-0:8000"),)))
    values = _one(show(run), "vllm:num_requests_running").values
    assert np.array_equal(np.isnan(values), run.times >= 600.0)


def test_times_jitter_and_stay_ascending(run_of):
    run = run_of(degradation=Degradation(jitter_seconds=2.0))
    times = _one(show(run), "up").times
    off = times - run.plan.start - run.times
    assert 1.0 < off.std() < 3.0
    assert (np.diff(times) > 0.0).all()


def test_only_what_is_measured_is_noisy(run_of):
    run = run_of(degradation=Degradation(noise_ratio=0.1))
    bundle = show(run)
    power = next(bundle.series("llmdiag_gpu_power_watts")).values
    assert 0.05 < power.std() / power.mean() < 0.15
    assert np.array_equal(_one(bundle, "vllm:num_requests_running").values, run.engines[0].gauges["running"])


def test_a_pause_holds_the_scrape_up(run_of):
    run = run_of(replicas=(Replica("vllm-0:8000", pauses=((598.0, 6.0), (1196.0, 30.0))),))
    bundle = show(run)
    took, up = _one(bundle, "scrape_duration_seconds").values, _one(bundle, "up").values
    assert took[run.times == 600.0][0] > 2.0
    assert up[run.times == 600.0][0] == 1.0
    assert up[run.times == 1200.0][0] == 0.0  # ten seconds are more than a scraper waits
    assert np.median(took) < 0.1


def test_without_up_there_is_none(run_of):
    assert not list(show(run_of(shown=Shown(up=False))).series("up"))


def test_equal_runs_give_equal_bundles(run_of):
    one, two = show(run_of()), show(run_of())
    for left, right in zip(one.series(), two.series(), strict=True):
        assert left.labels == right.labels
        assert np.array_equal(left.values, right.values)
    assert one.files == two.files
    assert one.requests == two.requests


def test_xids_are_events_of_their_card(run_of):
    cards = ((("node-0", 0), Gpu(xids=((900.0, 79),), uncorrectable_errors=(905.0, 910.0))),)
    for gpu, name in (("llmdiag", "llmdiag_gpu_xid_last_code"), ("dcgm", "DCGM_FI_DEV_XID_ERRORS")):
        bundle = show(run_of(cards=cards, shown=Shown(gpu=gpu)))
        found = [
            one for one in bundle.series(name) if one.labels["node"] == "node-0" and one.values[-1] == 79.0
        ]
        assert len(found) == 1, gpu
        assert not [one for one in bundle.series(name) if one.labels["node"] == "node-1" and one.values.any()]
    kernel = show(run_of(cards=cards)).files
    assert set(kernel) >= {"logs/kernel-node-0.log.gz"}
