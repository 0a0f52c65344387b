"""What triage reads out of a shown run is the truth of the run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diag.engines import ENGINES
from diag.errors import UsageError
from diag.model import Window
from diag.records.events import read_events
from diag.records.log import read_log
from diag.records.requests import read_requests
from diag.signals.frame import Grid
from diag.simulate.parts import load, save, write_archive
from diag.simulate.plan import Client, Fabric, Gpu, Mark, Replica, Restart, Settings, Shown, Truth
from diag.simulate.profiles import constant
from diag.simulate.telemetry import show
from diag.sources.bundle import BundleSource
from diag.sources.joins import joined


def _fetched(run, folder: Path, signals, window: float = 60.0):
    save(show(run), folder)
    start = run.plan.start
    with BundleSource(folder) as source:
        return source.fetch(signals, Grid(start + 120.0, start + run.plan.seconds, 60.0, window))


def _of(fetched, signal: str, instance: str = "vllm-0:8000"):
    return next(one for one in fetched.series[signal] if one.labels.get("instance") == instance)


def test_gauges_and_rates_read_back_as_the_truth(run_of, tmp_path):
    run = run_of()
    signals = ("running_requests_max", "kv_cache_usage_ratio", "generation_tokens_per_second",
               "ttft_seconds_mean", "prefix_cache_hit_ratio", "engine_start_time_seconds")  # fmt: skip
    fetched = _fetched(run, tmp_path, signals)
    engine, times = run.engines[0], run.times
    for signal, truth in (("running_requests_max", "running"), ("kv_cache_usage_ratio", "kv_used_ratio")):
        seen = _of(fetched, signal)
        for when, value in zip(seen.times, seen.values, strict=True):
            inside = (times > when - run.plan.start - 60.5) & (times <= when - run.plan.start + 0.5)
            assert value <= engine.gauges[truth][inside].max() + 1e-6
    made = _of(fetched, "generation_tokens_per_second").values
    assert made.mean() == pytest.approx(engine.counters["generation_tokens"][-1] / 1800.0, rel=0.03)
    wait = _of(fetched, "ttft_seconds_mean").values
    whole = engine.sums["ttft_seconds"][-1] / engine.histograms["ttft_seconds"][-1].sum()
    assert np.nanmean(wait) == pytest.approx(whole, rel=0.05)
    hits = _of(fetched, "prefix_cache_hit_ratio").values
    assert np.nanmean(hits) == pytest.approx(0.6, abs=0.03)
    begun = _of(fetched, "engine_start_time_seconds").values
    assert (begun == run.plan.start - 86_400.0).all()


def test_sglang_reads_back_too(run_of, tmp_path):
    run = run_of(shown=Shown(engine="sglang"))
    signals = ("running_requests", "kv_capacity_tokens", "prompt_tokens_per_second", "e2e_seconds_mean")
    fetched = _fetched(run, tmp_path, signals)
    assert (_of(fetched, "kv_capacity_tokens").values == 320_000.0).all()
    read = _of(fetched, "prompt_tokens_per_second").values
    assert read.mean() == pytest.approx(run.engines[0].counters["prompt_tokens"][-1] / 1800.0, rel=0.03)
    assert np.nanmean(_of(fetched, "e2e_seconds_mean").values) == pytest.approx(6.8, rel=0.1)


@pytest.mark.parametrize("gpu", ["llmdiag", "dcgm", "nvidia_gpu_exporter"])
def test_a_card_reads_back_through_every_exporter(run_of, tmp_path, gpu):
    run = run_of(shown=Shown(gpu=gpu))
    producer = next(engine for engine in ENGINES if engine.name == gpu)
    signals = ("gpu_temperature_celsius", "gpu_power_watts", "gpu_sm_clock_hertz", "gpu_sm_clock_max_hertz",
               "gpu_thermal_throttle_ratio", "gpu_link_width_ratio", "gpu_memory_used_bytes",
               "gpu_utilization_ratio", "gpu_power_limit_watts")  # fmt: skip
    fetched = _fetched(run, tmp_path, signals)
    assert not fetched.gaps
    for signal in signals:
        assert {one.labels["node"] for one in fetched.series[signal]} == {"node-0", "node-1"}
        assert {one.producer for one in fetched.series[signal]} == {producer.name}
    one = {signal: fetched.series[signal][0] for signal in signals}
    assert one["gpu_temperature_celsius"].values.mean() == pytest.approx(58.0, abs=0.5)
    assert (one["gpu_sm_clock_hertz"].values == 1.98e9).all()
    late = one["gpu_thermal_throttle_ratio"].times > run.plan.start + 700.0
    assert one["gpu_thermal_throttle_ratio"].values[late].mean() == pytest.approx(0.25, abs=0.15)
    assert one["gpu_thermal_throttle_ratio"].values[~late][:5].mean() == pytest.approx(0.0, abs=0.02)
    width = one["gpu_link_width_ratio"]
    assert width.values[0] == 1.0
    assert width.values[-1] == 0.5


def test_a_host_reads_back(run_of, tmp_path):
    run = run_of()
    signals = ("node_cpu_busy_ratio", "node_cpu_count", "node_memory_available_ratio",
               "node_numa_remote_ratio", "node_tcp_retransmit_ratio", "node_network_drops_per_second",
               "container_cpu_throttled_ratio", "node_major_faults_per_second",
               "process_resident_memory_bytes")  # fmt: skip
    fetched = _fetched(run, tmp_path, signals)
    assert not fetched.gaps
    means = {name: float(np.nanmean(fetched.series[name][0].values)) for name in signals}
    assert means["node_cpu_busy_ratio"] == pytest.approx(0.3, abs=0.01)
    assert means["node_cpu_count"] == 8.0
    assert means["node_memory_available_ratio"] == pytest.approx(0.6, abs=0.01)
    assert means["node_numa_remote_ratio"] == pytest.approx(0.04, abs=0.01)
    assert means["node_tcp_retransmit_ratio"] == pytest.approx(0.0005, rel=0.1)
    assert means["node_network_drops_per_second"] == 0.0
    assert fetched.series["container_cpu_throttled_ratio"][0].values[-1] == pytest.approx(0.4, abs=0.02)
    assert means["process_resident_memory_bytes"] == 9e8
    backends = {one.labels["instance"] for one in fetched.series["process_resident_memory_bytes"]}
    assert backends == {"chat-backend-0:8080", "chat-backend-1:8080"}  # engines are left out


def test_engines_join_their_node_by_label(run_of, tmp_path):
    fetched = _fetched(run_of(), tmp_path, ("running_requests", "node_load1", "gpu_power_watts"))
    joins, notes = joined(fetched.series)
    assert {join.instance: join.node for join in joins} == {"vllm-0:8000": "node-0", "vllm-1:8000": "node-1"}
    assert {join.how for join in joins} == {"label"}
    assert notes == ()


def test_facts_of_the_page_and_of_the_log(run_of, tmp_path):
    settings = Settings(kv_blocks=9000, max_num_seqs=48, prefix_caching=False, speculative_tokens=3)
    run = run_of(replicas=(Replica("vllm-0:8000", settings=settings),))
    facts = {fact.name: fact.value for fact in _fetched(run, tmp_path, ("running_requests",)).facts}
    assert facts["kv_blocks"] == "9000"
    assert facts["kv_capacity_tokens"] == "144000"
    assert facts["prefix_caching"] == "off"
    window = Window(run.plan.start, run.plan.start + run.plan.seconds)
    log = read_log(tmp_path / "logs" / "vllm-0.log.gz", window=window, component="vllm-0:8000")
    said = {fact.name: fact.value for fact in log.facts}
    assert said["max_num_seqs"] == "48"
    assert said["engine_version"] == "0.32.0"
    assert said["kv_capacity_tokens"] == "144000"
    assert said["prefix_caching"] == "off"
    assert said["speculative_decoding"] == "on"
    assert said["speculative_tokens"] == "3"
    assert log.notes == ()


def test_the_log_prints_what_the_page_shows(run_of, tmp_path):
    run = run_of()
    save(show(run), tmp_path)
    window = Window(run.plan.start, run.plan.start + run.plan.seconds)
    log = read_log(tmp_path / "logs" / "vllm-0.log.gz", window=window, component="vllm-0:8000")
    printed = next(series for series in log.series if series.signal == "running_requests")
    rows = np.searchsorted(run.times, printed.times - run.plan.start)
    assert printed.times.size == 30
    assert np.array_equal(printed.values, run.engines[0].gauges["running"][rows])


def test_restarts_and_bind_failures_stand_in_the_log(run_of, tmp_path):
    restarts = (Restart(600.0, 40.0, reason="deploy"), Restart(1200.0, 120.0, reason="bind", attempts=3))
    run = run_of(replicas=(Replica("vllm-0:8000", restarts=restarts),))
    save(show(run), tmp_path)
    window = Window(run.plan.start, run.plan.start + run.plan.seconds)
    log = read_log(tmp_path / "logs" / "vllm-0.log.gz", window=window, component="vllm-0:8000")
    kinds = [event.kind for event in log.events]
    assert kinds.count("restart") == 2 + 3  # a start that fails is one, too
    assert kinds.count("bind_failure") == 3
    assert kinds.count("engine_error") == 0


def test_trouble_stands_in_the_log(run_of, tmp_path):
    replica = Replica(
        "vllm-0:8000",
        settings=Settings(tensor_parallel=2),
        gpus=(0, 1),
        hangs=((300.0, 430.0),),
        restarts=(Restart(600.0, 40.0, reason="xid"),),
    )
    run = run_of(replicas=(replica,), fabric=Fabric())
    run.engines[0].counters["transfer_failures"] = np.where(run.times < 1000.0, 0.0, 3.0)
    run.log.append((1500.0, "vllm-0:8000", "ERROR [core.py:1121] EngineCore encountered a fatal error."))
    save(show(run), tmp_path)
    window = Window(run.plan.start, run.plan.start + run.plan.seconds)
    log = read_log(tmp_path / "logs" / "vllm-0.log.gz", window=window, component="vllm-0:8000")
    told = {(event.kind, event.time - run.plan.start) for event in log.events}
    assert {("engine_error", time) for time in (360.0, 420.0, 600.0, 1500.0)} <= told
    assert ("kv_load_failure", 1005.0) in told


def test_kernel_lines_are_read_as_events(run_of, tmp_path):
    run = run_of(cards=((("node-0", 0), Gpu(xids=((900.0, 79),))),))
    save(show(run), tmp_path)
    window = Window(run.plan.start, run.plan.start + run.plan.seconds)
    log = read_log(tmp_path / "logs" / "kernel-node-0.log.gz", window=window, component="kernel-node-0")
    found = {(event.kind, event.time - run.plan.start) for event in log.events}
    assert ("xid", 900.0) in found
    assert ("oom_kill", 1200.0) in found
    assert log.notes == ()


def test_client_records_are_the_calls(run_of, tmp_path):
    run = run_of()
    save(show(run), tmp_path)
    read = read_requests([tmp_path / "requests" / "requests.jsonl.gz"])
    frame = read.frame
    calls = {f"r{call.number:06d}": call for call in run.calls}
    assert read.bad_total == 0
    assert len(frame) == len(calls)
    for row in frame.itertuples():
        call = calls[row.request_id]
        assert row.ts - run.plan.start == pytest.approx(call.sent, abs=0.002)
        if call.closed > run.plan.seconds:  # still open when the window ended
            assert row.status is None
            assert np.isnan(row.duration_seconds)
            continue
        assert row.status == call.status
        assert row.duration_seconds == pytest.approx(call.closed - call.sent, abs=1e-3)
        assert row.ttft_seconds == pytest.approx(call.answered - call.sent, abs=1e-3)
        assert row.cached_tokens == 300 if call.status == "ok" else np.isnan(row.cached_tokens)
        assert (row.tenant, row.session, row.instance) == (call.tenant, call.session, call.replica)


def test_records_hold_what_is_shown(run_of):
    hidden = show(run_of(shown=Shown(session_ids=False, cached_tokens=False))).requests
    assert not {"session", "cached_tokens", "structured"} & {key for row in hidden for key in row}
    client = Client(structured_ratio=constant(0.3))
    assert all(row["structured"] == 0 for row in show(run_of(clients=(client,))).requests)
    assert show(run_of(shown=Shown(records=False))).requests == ()


def test_the_gateways_log_tells_its_own_wait(run_of, tmp_path):
    run = run_of(shown=Shown(gateway_log=True))
    save(show(run), tmp_path)
    frame = read_requests([tmp_path / "requests" / "requests.jsonl.gz"]).frame
    ended = [call for call in run.calls if call.closed <= run.plan.seconds]
    assert len(frame) == len(ended)
    assert set(frame["source"]) == {"nginx"}
    assert frame["upstream_connect_seconds"].to_numpy() == pytest.approx(0.002)
    waited = (frame["duration_seconds"] - frame["upstream_response_seconds"]).to_numpy()
    assert waited == pytest.approx(0.01, abs=2e-3)
    assert (frame["status"] == "aborted").sum() == sum(call.status == "aborted" for call in ended)


def test_marks_label_and_window(run_of, tmp_path):
    truth = Truth(
        ("load_burst",),
        "load_burst",
        (),
        ("network_latency",),
        (("instances", ("vllm-0:8000",)),),
        900.0,
        0.4,
    )
    marks = (Mark(905.0, "deploy", "web", "new texts"),)
    run = run_of(truth=truth, marks=marks, notes="more sessions.")
    bundle = show(run)
    save(bundle, tmp_path)
    assert read_events([tmp_path / "events.jsonl"])[0].time == run.plan.start + 905.0
    assert bundle.label == {
        "causes": ["load_burst"], "leading": "load_burst", "accept": ["load_burst"],
        "must_not": ["network_latency"], "scope": {"instances": ["vllm-0:8000"]},
        "onset": run.plan.start + 900.0, "kind": "simulated", "severity": 0.4,
    }  # fmt: skip
    described = json.loads((tmp_path / "bundle.json").read_text())
    assert described["window"] == {"from": run.plan.start, "to": run.plan.start + 1800.0}
    assert described["notes"] == "SIMULATED: more sessions."
    assert described["incident"] is None


def test_nothing_wrong_has_no_onset(run_of):
    label = show(run_of()).label
    assert (label["causes"], label["leading"], label["accept"], label["onset"]) == ([], None, [], None)


@pytest.mark.parametrize("form", ["folder", "x.zip", "x.tar.gz"])
def test_a_bundle_written_and_read_is_the_same(run_of, tmp_path, form):
    bundle = show(run_of(fabric=Fabric()))
    path = save(bundle, tmp_path / form) if form == "folder" else write_archive(bundle, tmp_path / form)
    if form == "x.zip":
        with BundleSource(path) as source:
            assert source.extent() == bundle.window
        return
    again = load(path)
    assert again.meta == json.loads(json.dumps(bundle.meta))
    assert [dict(row) for row in again.requests] == [dict(row) for row in bundle.requests]
    for stem, group in bundle.metrics.items():
        for left, right in zip(group, again.metrics[stem], strict=True):
            assert left.labels == right.labels
            assert np.array_equal(left.values, right.values, equal_nan=True)
            assert np.allclose(left.times, right.times, atol=1e-3)


def test_equal_bundles_give_equal_archives(run_of, tmp_path):
    for name in ("a.zip", "a.tar.gz"):
        one = write_archive(show(run_of()), tmp_path / "one" / name).read_bytes()
        two = write_archive(show(run_of()), tmp_path / "two" / name).read_bytes()
        assert one == two


def test_an_archive_of_another_kind_is_refused(run_of, tmp_path):
    with pytest.raises(UsageError, match=r"x\.rar is neither"):
        write_archive(show(run_of()), tmp_path / "x.rar")
