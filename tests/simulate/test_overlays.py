"""The overlaid incidents: deterministic, labelled, and honest about what goes with what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diag.errors import UsageError
from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate import OVERLAID, Bundle, load, overlaid, save, write_overlaid
from diag.simulate.gpu import H200

GPU_INCIDENTS = ["context_growth_gpu", "healthy_thermal", "healthy_power_brake", "healthy_neighbour"]


def one(bundle: Bundle, name: str, **labels: str) -> RawSeries:
    found = [s for s in bundle.series(name) if labels.items() <= s.labels.items()]
    assert len(found) == 1, f"{len(found)} series {name} {labels}"
    return found[0]


def halves(series: RawSeries, onset: float, settle: float = 20.0) -> tuple[Floats, Floats]:
    return series.values[series.times < onset], series.values[series.times > onset + settle]


def mean_of(bundle: Bundle, family: str, start: float, end: float) -> float:
    total, count = one(bundle, f"{family}_sum"), one(bundle, f"{family}_count")
    inside = (total.times >= start) & (total.times <= end)
    return float(np.ptp(total.values[inside]) / np.ptp(count.values[inside]))


def busy_times(bundle: Bundle, process: str) -> tuple[Floats, Floats]:
    """When a process of that name holds memory: the exporter's times, and 0 or 1."""
    apps = bundle.series("nvidia_smi_compute_app_used_memory_bytes")
    workers = [app for app in apps if app.labels["process_name"] == process]
    assert len(workers) >= 3
    assert len({worker.labels["pid"] for worker in workers}) == len(workers)
    times = one(bundle, "DCGM_FI_DEV_GPU_UTIL").times
    return times, np.isin(times, np.concatenate([worker.times for worker in workers])).astype(np.float64)


@pytest.mark.parametrize("name", OVERLAID)
def test_it_is_deterministic_and_says_what_it_is(
    name: str, made: Callable[[str], Bundle], tmp_path: Path
) -> None:
    bundle = made(name)
    first, second = save(bundle, tmp_path / "a"), write_overlaid(name, tmp_path / "b")
    names = [path.relative_to(first) for path in sorted(first.rglob("*")) if path.is_file()]
    assert all((first / path).read_bytes() == (second / path).read_bytes() for path in names)
    assert bundle.name == name
    assert bundle.meta["notes"].startswith("SIMULATED: ")
    assert bundle.label["kind"] == "simulated"
    assert bundle.label["leading"] in bundle.label["causes"]
    assert bundle.window.contains(bundle.label["onset"])
    assert load(first).window == bundle.window


@pytest.mark.parametrize("name", GPU_INCIDENTS)
def test_both_exporters_show_the_same_card(name: str, made: Callable[[str], Bundle]) -> None:
    bundle = made(name)
    dcgm, smi = one(bundle, "DCGM_FI_DEV_SM_CLOCK"), one(bundle, "nvidia_smi_clocks_current_sm_clock_hz")
    assert np.array_equal(dcgm.values * 1e6, smi.values)
    assert dcgm.labels["UUID"] == f"GPU-{smi.labels['uuid']}"
    assert "simulated" in dcgm.labels["modelName"]
    assert np.allclose(np.diff(dcgm.times), 2.0)
    mask = one(bundle, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS").values.astype(int)
    brake = one(bundle, "nvidia_smi_clocks_event_reasons_hw_power_brake_slowdown").values
    assert np.array_equal((mask & 0x80) > 0, brake == 1.0)
    used = one(bundle, "nvidia_smi_memory_used_bytes").values
    assert (used < H200.memory_bytes).all()


def test_the_calm_card_is_calm_and_the_recording_untouched(made: Callable[[str], Bundle]) -> None:
    bundle = made("context_growth_gpu")
    clock = one(bundle, "DCGM_FI_DEV_SM_CLOCK").values
    assert (clock >= H200.max_clock_mhz - 15.0).all()
    mask = one(bundle, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS").values
    assert set(np.unique(mask)) <= {0.0, 4.0}
    assert (mask != 0).mean() < 0.02
    assert one(bundle, "DCGM_FI_DEV_GPU_TEMP").values.max() < 66.0
    assert set(bundle.metrics) == {"engine", "gpu_simulated"}
    assert {"noisy_neighbour", "power_cap", "thermal_throttle"} == set(bundle.label["must_not"])


def test_the_calm_cards_batch_job_has_its_own_hours(made: Callable[[str], Bundle]) -> None:
    bundle = made("context_growth_gpu")
    times, busy = busy_times(bundle, "nightly_embeddings")
    switches = int(np.abs(np.diff(busy.astype(int))).sum())
    assert switches >= 5
    assert times[np.argmax(busy)] < bundle.label["onset"] - 30.0
    rows = [row for row in bundle.requests if row.get("ttft_seconds") is not None]
    slow = np.log([row["ttft_seconds"] for row in rows])
    beside = np.interp([row["ts"] for row in rows], times, busy)
    assert abs(np.corrcoef(slow, beside)[0, 1]) < 0.2


def test_power_follows_the_recordings_load(made: Callable[[str], Bundle]) -> None:
    bundle = made("healthy_power_brake")
    before = bundle.label["onset"]
    use, watts = one(bundle, "DCGM_FI_DEV_GPU_UTIL"), one(bundle, "DCGM_FI_DEV_POWER_USAGE")
    quiet = use.times < before
    assert np.corrcoef(use.values[quiet], watts.values[quiet])[0, 1] > 0.9


def test_heat_comes_first_then_the_clock_sinks_then_tokens_are_slow(made: Callable[[str], Bundle]) -> None:
    bundle = made("healthy_thermal")
    onset = bundle.label["onset"]
    clock, heat = one(bundle, "DCGM_FI_DEV_SM_CLOCK"), one(bundle, "DCGM_FI_DEV_GPU_TEMP")
    before, after = halves(clock, onset)
    share = np.median(after) / H200.max_clock_mhz
    assert 0.55 <= share <= 0.65
    assert (before >= 0.94 * H200.max_clock_mhz).all()
    warm = heat.times[np.argmax(heat.values > np.median(heat.values[:20]) + 8.0)]
    assert warm < onset
    sinking = (clock.times > onset - 10.0) & (clock.times < onset + 16.0)
    assert np.corrcoef(heat.values[sinking], clock.values[sinking])[0, 1] < -0.7
    mask = one(bundle, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS").values.astype(int)
    assert ((mask & 0x60) > 0)[clock.times > onset + 4.0].all()
    assert not ((mask & 0x60) > 0)[clock.times < onset - 6.0].any()
    itl = "vllm:inter_token_latency_seconds"
    slowing = mean_of(bundle, itl, onset + 20, 2e9) / mean_of(bundle, itl, 0, onset - 10)
    assert slowing == pytest.approx(1.0 / share, rel=0.12)


def test_a_power_brake_halves_the_clock_and_cools_the_card(made: Callable[[str], Bundle]) -> None:
    bundle = made("healthy_power_brake")
    onset = bundle.label["onset"]
    clock_before, clock_after = halves(one(bundle, "DCGM_FI_DEV_SM_CLOCK"), onset)
    heat_before, heat_after = halves(one(bundle, "DCGM_FI_DEV_GPU_TEMP"), onset)
    assert np.median(clock_after) == pytest.approx(0.5 * np.median(clock_before), rel=0.02)
    assert np.median(heat_after) < np.median(heat_before) - 8.0
    first, last = halves(
        one(bundle, "nvidia_smi_clocks_event_reasons_counters_hw_power_brake_slowdown_seconds"), onset
    )
    assert first.max() == 0.0
    assert np.ptp(last) > 50.0
    thermal = one(bundle, "DCGM_FI_DEV_THERMAL_VIOLATION")
    assert thermal.values.max() == 0.0


def test_the_neighbour_is_in_step_with_the_slow_spells(made: Callable[[str], Bundle]) -> None:
    bundle = made("healthy_neighbour")
    onset = bundle.label["onset"]
    times, busy = busy_times(bundle, "finetune_worker")
    assert times[np.argmax(busy)] == pytest.approx(onset, abs=2.0)
    assert np.abs(np.diff(busy)).sum() >= 8
    rows = [row for row in bundle.requests if row.get("ttft_seconds") and onset + 2 < row["ts"]]
    beside = np.interp([row["ts"] for row in rows], times, busy)
    first = np.log([row["ttft_seconds"] for row in rows])
    assert np.exp(first[beside == 1.0].mean() - first[beside == 0.0].mean()) > 1.7
    assert (one(bundle, "DCGM_FI_DEV_SM_CLOCK").values >= H200.max_clock_mhz - 15.0).all()
    use = one(bundle, "DCGM_FI_DEV_GPU_UTIL")
    assert (use.values[busy == 1.0] == 100.0).all()


@pytest.mark.parametrize("name", ["healthy_thermal", "healthy_power_brake", "healthy_neighbour"])
def test_engine_and_client_agree_on_how_much_slower(name: str, made: Callable[[str], Bundle]) -> None:
    bundle = made(name)
    onset = bundle.label["onset"]
    family = "vllm:time_to_first_token_seconds"
    engine = mean_of(bundle, family, onset + 10, 2e9) / mean_of(bundle, family, 0, onset - 10)
    first = [(row["ts"], row["ttft_seconds"]) for row in bundle.requests if row.get("ttft_seconds")]
    late = np.mean([value for at, value in first if at > onset + 10])
    early = np.mean([value for at, value in first if at < onset - 10])
    assert engine == pytest.approx(late / early, rel=0.15)
    assert engine > 1.3


def test_a_leak_pages_while_the_engine_stays_fast(made: Callable[[str], Bundle]) -> None:
    bundle = made("healthy_leak")
    onset = bundle.label["onset"]
    resident = one(bundle, "process_resident_memory_bytes", job="chat-backend")
    total = one(bundle, "node_memory_MemTotal_bytes").values[0]
    assert (np.diff(resident.values[resident.times < onset]) > 0).all()
    assert resident.values.max() < total
    available = one(bundle, "node_memory_MemAvailable_bytes")
    assert available.values[available.times < onset - 2].min() > 0.06 * total
    assert available.values[available.times > onset + 10].max() < 0.03 * total
    faults = one(bundle, "node_vmstat_pgmajfault")
    first, last = halves(faults, onset)
    assert np.ptp(last) > 100.0 * max(np.ptp(first), 1.0)
    family = "vllm:time_to_first_token_seconds"
    assert mean_of(bundle, family, onset, 2e9) < 0.04
    late = [
        row["ttft_seconds"] for row in bundle.requests if row["ts"] > onset + 15 and row.get("ttft_seconds")
    ]
    assert np.median(late) > 1.0
    swap = one(bundle, "node_memory_SwapFree_bytes").values
    assert swap.min() >= 0.0
    assert swap[0] > swap[-1]


def test_a_slow_gateway_shows_in_connect_time_only(made: Callable[[str], Bundle]) -> None:
    bundle = made("healthy_gateway")
    onset = bundle.label["onset"]
    begun = [(float(row["msec"]) - float(row["request_time"]), row) for row in bundle.requests]
    connect = [(at, float(row["upstream_connect_time"])) for at, row in begun]
    assert np.median([value for at, value in connect if at < onset]) < 0.005
    assert np.median([value for at, value in connect if at > onset]) > 1.0
    for _, row in begun:
        assert (
            float(row["request_time"])
            >= float(row["upstream_response_time"])
            >= float(row["upstream_connect_time"])
        )
        assert row["upstream_header_time"] == "-" or (
            float(row["upstream_header_time"]) >= float(row["upstream_connect_time"])
        )
    family = "vllm:e2e_request_latency_seconds"
    assert mean_of(bundle, family, onset, 2e9) == pytest.approx(mean_of(bundle, family, 0, onset), rel=0.15)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="choose from context_growth_gpu"):
        overlaid("healthy_moonlight")
