"""What the engine files promise beyond names: labels, zeros, absence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from diag.engines import ENGINES, Absent, Definition, canonical, engine
from diag.engines.combine import ENGINE_BY, GPU_BY, NODE_BY
from diag.errors import SignalError
from diag.signals.frame import Grid, RawSeries, SampleIndex, Vector, evaluate

_GRID = Grid(1000.0, 1060.0, 10.0, 60.0)
_TIMES = np.arange(900.0, 1061.0, 10.0)


def _constant(name: str, value: float, **labels: str) -> RawSeries:
    return RawSeries({"__name__": name, **labels}, _TIMES, np.full(len(_TIMES), value))


def _growing(name: str, per_second: float, **labels: str) -> RawSeries:
    return RawSeries({"__name__": name, **labels}, _TIMES, (_TIMES - _TIMES[0]) * per_second)


def _read(producer: str, signal: str, *series: RawSeries) -> list[Vector]:
    definition = engine(producer).signals[signal]
    assert isinstance(definition, Definition)
    return evaluate(definition.expr, SampleIndex(series), _GRID)


def _last(producer: str, signal: str, *series: RawSeries) -> dict[str, float]:
    return {v.labels.get("instance", ""): float(v.values[-1]) for v in _read(producer, signal, *series)}


def test_an_unknown_engine_is_named_in_one_line() -> None:
    with pytest.raises(SignalError, match="no engine file is called 'tgi9'; there are vllm"):
        engine("tgi9")


def test_every_result_keeps_only_labels_for_joins(samples: list[RawSeries]) -> None:
    index, grid = SampleIndex(samples), Grid(1795985774.0, 1795986019.0, 15.0, 30.0)
    allowed = {*ENGINE_BY, *GPU_BY, *NODE_BY, "job", "container"}
    for producer in ENGINES:
        for name, definition in producer.signals.items():
            if isinstance(definition, Definition):
                for vector in evaluate(definition.expr, index, grid):
                    assert set(vector.labels) <= allowed, (producer.name, name, vector.labels)


def test_every_absence_says_why() -> None:
    reasons = [d.why for e in ENGINES for d in e.signals.values() if isinstance(d, Absent)]
    assert reasons
    assert all(len(reason) > 20 for reason in reasons)


def test_data_parallel_engines_add_up_but_their_cache_use_does_not() -> None:
    running = [
        _constant("vllm:num_requests_running", v, instance="a", engine=e) for v, e in ((3, "0"), (4, "1"))
    ]
    usage = [
        _constant("vllm:kv_cache_usage_perc", v, instance="a", engine=e) for v, e in ((0.5, "0"), (0.9, "1"))
    ]
    assert _last("vllm", "running_requests", *running) == {"a": 7.0}
    assert _last("vllm", "kv_cache_usage_ratio", *usage) == {"a": 0.9}


def test_a_mixed_fleet_is_counted_once_each() -> None:
    mixed = [
        _growing("vllm:prefix_cache_queries_total", 10.0, instance="both"),
        _growing("vllm:gpu_prefix_cache_queries_total", 10.0, instance="both"),
        _growing("vllm:gpu_prefix_cache_queries_total", 5.0, instance="old"),
        _growing("vllm_prefix_cache_queries_total", 2.0, instance="underscore"),
    ]
    found = _last("vllm", "prefix_cache_query_tokens_per_second", *mixed)
    assert found == pytest.approx({"both": 10.0, "old": 5.0, "underscore": 2.0})


def test_the_routers_copy_of_an_engine_is_left_out() -> None:
    series = [
        _constant("vllm:num_requests_running", 3.0, instance="engine"),
        _constant("vllm:num_requests_running", 3.0, instance="router", server="http://engine"),
    ]
    assert _last("vllm", "running_requests", *series) == {"engine": 3.0}


def test_no_hit_ratio_while_nothing_is_looked_up() -> None:
    series = [
        _growing(f"vllm:prefix_cache_{kind}_total", 0.0, instance="off") for kind in ("hits", "queries")
    ]
    assert _read("vllm", "prefix_cache_hit_ratio", *series) == [] or all(
        np.isnan(v.values).all() for v in _read("vllm", "prefix_cache_hit_ratio", *series)
    )


def test_process_series_of_other_programs_are_not_the_engines() -> None:
    series = [
        _constant("vllm:num_requests_running", 1.0, instance="engine"),
        _constant("process_resident_memory_bytes", 5e9, instance="engine"),
        _constant("process_resident_memory_bytes", 2e8, instance="backend"),
    ]
    assert _last("vllm", "engine_resident_memory_bytes", *series) == {"engine": 5e9}
    assert _last("process", "process_resident_memory_bytes", *series) == {"backend": 2e8}


def test_no_5xx_series_yet_means_zero_errors_once_requests_are_counted() -> None:
    busy = [
        _constant("vllm:num_requests_running", 1.0, instance="a"),
        _growing("http_requests_total", 2.0, instance="a", handler="/v1/completions", status="2xx"),
    ]
    assert _last("vllm", "http_errors_per_second", *busy) == {"a": 0.0}
    assert _last("vllm", "http_errors_per_second", busy[0]) == {}


def test_sglang_ranks_repeat_the_truth_and_replicas_add_to_it() -> None:
    series = [
        _constant("sglang:num_running_reqs", value, instance="a", dp_rank=dp, tp_rank=tp)
        for dp, tp, value in (("0", "0", 5.0), ("0", "1", 5.0), ("1", "0", 2.0))
    ]
    total = _constant("sglang:num_running_reqs", 4.0, instance="a", dp_rank="0", tp_rank="0", priority="1")
    assert _last("sglang", "running_requests", *series, total) == {"a": 7.0}


_MASKS = [
    (0x20, {"thermal": 1.0, "power": 0.0, "brake": 0.0}),
    (0x60, {"thermal": 1.0, "power": 0.0, "brake": 0.0}),
    (0x04, {"thermal": 0.0, "power": 1.0, "brake": 0.0}),
    (0x88, {"thermal": 0.0, "power": 0.0, "brake": 1.0}),
    (0x01, {"thermal": 0.0, "power": 0.0, "brake": 0.0}),
]
_THROTTLES = {
    "thermal": "gpu_thermal_throttle_ratio",
    "power": "gpu_power_throttle_ratio",
    "brake": "gpu_power_brake_ratio",
}


@pytest.mark.parametrize(("mask", "expected"), _MASKS)
def test_dcgm_reasons_are_read_bit_by_bit(mask: int, expected: Mapping[str, float]) -> None:
    series = _constant("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", float(mask), instance="a", UUID="GPU-1")
    assert {what: _last("dcgm", name, series)["a"] for what, name in _THROTTLES.items()} == expected


def test_dcgm_violation_nanoseconds_become_a_share_of_time() -> None:
    series = _growing("DCGM_FI_DEV_THERMAL_VIOLATION", 2.5e8, instance="a")
    assert _last("dcgm", "gpu_thermal_throttle_ratio", series) == pytest.approx({"a": 0.25})


@pytest.mark.parametrize(
    ("metric", "signal", "blank"),
    [
        ("DCGM_FI_DEV_MEMORY_TEMP", "gpu_memory_temperature_celsius", 9223372036854775794.0),
        ("DCGM_FI_DEV_MEMORY_TEMP", "gpu_memory_temperature_celsius", 2147483632.0),
        ("DCGM_FI_DEV_POWER_USAGE", "gpu_power_watts", 140737488355328.0),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gpu_thermal_throttle_ratio", 9223372036854775794.0),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", "gpu_thermal_throttle_ratio", 9223372036854775794.0),
    ],
)
def test_an_unsupported_dcgm_field_is_absent_not_healthy(metric: str, signal: str, blank: float) -> None:
    assert _read("dcgm", signal, _constant(metric, blank, instance="a")) == []


def test_foreign_memory_is_that_of_processes_that_are_no_engine() -> None:
    def app(pid: str, process: str, gpu: str) -> RawSeries:
        name = "nvidia_smi_compute_app_used_memory_bytes"
        return _constant(name, 1e9, instance="a", uuid=gpu, pid=pid, process_name=process)

    found = _read(
        "nvidia_gpu_exporter",
        "gpu_foreign_memory_bytes",
        *(app("1", "VLLM::Worker_TP0", "own"), app("2", "python3", "own")),
        *(
            app("1", "VLLM::EngineCore", "shared"),
            app("3", "./gpu_burn", "shared"),
            app("4", "memhog", "shared"),
        ),
        _constant("nvidia_smi_compute_apps", 0.0, instance="a", uuid="idle"),
    )
    assert {v.labels["uuid"]: v.values[-1] for v in found} == {"own": 0.0, "shared": 2e9, "idle": 0.0}


def test_without_a_process_list_foreign_memory_is_unknown() -> None:
    page = _constant("nvidia_smi_utilization_gpu_ratio", 1.0, instance="a", uuid="x")
    assert _read("nvidia_gpu_exporter", "gpu_foreign_memory_bytes", page) == []


def test_one_card_has_one_name_whoever_reports_it() -> None:
    uuid = "74f7fe3b-48f2-6d8b-3cb4-e70426fb669c"
    dcgm = canonical(engine("dcgm"), {"UUID": f"GPU-{uuid}", "gpu": "0", "Hostname": "n1", "pod": ""})
    smi = canonical(engine("nvidia_gpu_exporter"), {"uuid": uuid, "instance": "n1:9835"})
    assert dcgm == {"gpu": f"GPU-{uuid}", "gpu_index": "0", "node": "n1"}
    assert smi == {"gpu": f"GPU-{uuid}", "instance": "n1:9835"}


def test_a_label_that_is_canonical_already_wins() -> None:
    assert canonical(engine("dcgm"), {"node": "k8s-1", "Hostname": "exporter-pod"}) == {"node": "k8s-1"}


def test_the_recording_of_a_full_cache_reads_as_one(incidents: Path, samples: list[RawSeries]) -> None:
    assert (incidents / "context_growth_reference").is_dir()
    grid = Grid(1795985774.0, 1795986019.0, 5.0, 30.0)
    definition = engine("vllm").signals["kv_cache_usage_ratio"]
    assert isinstance(definition, Definition)
    (usage,) = (
        v
        for v in evaluate(definition.expr, SampleIndex(samples), grid)
        if v.labels["instance"].startswith("vllm")
    )
    assert np.nanmax(usage.values) > 0.99
    assert np.nanmin(usage.values) < 0.5
