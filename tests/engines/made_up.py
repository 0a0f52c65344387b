"""Made-up samples for every name, age and spelling in the engine files, and what was recorded."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from diag.engines import ENGINES
from diag.signals.algebra import (
    Aggregate,
    Binary,
    Bit,
    Clamp,
    Expr,
    FirstOf,
    Gauge,
    Increase,
    Keep,
    Quantile,
    Rate,
    Scale,
    Select,
    Unless,
    spellings,
)
from diag.signals.frame import RawSeries

__all__ = ["SECONDS", "START", "made_up", "make", "open_metrics", "read_from", "recorded", "variants"]

START = 1795985774.0
SECONDS = 247.0


def open_metrics(series: Sequence[RawSeries]) -> str:
    """Samples as OpenMetrics text; NaN samples are left out: a store returns none for staleness."""
    lines = []
    for one in series:
        pairs = [(k, v) for k, v in one.labels.items() if k != "__name__"]
        quoted = ",".join(f"{k}={json.dumps(v)}" for k, v in pairs)
        head = f"{one.labels['__name__']}{{{quoted}}}"
        lines += [
            f"{head} {value!r} {moment:.3f}"
            for moment, value in zip(one.times.tolist(), one.values.tolist(), strict=True)
            if value == value
        ]
    return "\n".join([*lines, "# EOF", ""])


def recorded(bundle: Path) -> Iterator[RawSeries]:
    for path in sorted((bundle / "metrics").glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in lines:
                row = json.loads(line)
                values = np.array([np.nan if v is None else float(v) for v in row["values"]])
                yield RawSeries(row["metric"], np.array(row["timestamps"]) / 1000.0, values)


_REASONS = tuple(
    {"reason": reason} for reason in ("idle", "sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake")
)
# The collector's own numbers of NUMA nodes, and a machine's name where the target's label wins.
_NUMA = ({"node": "0"}, {"node": "1"}, {"node": "machine-7"})
_PROCESSES = (
    *("VLLM::worker", "EngineCore", "sglang::scheduler", "trtllm-serve", "tritonserver", "triton-stub"),
    *("text-generation-server", "dynamo-run", "/usr/bin/python3.11", "[Not Found]", "./gpu_burn"),
)
# Label values that the conditions in the engine files tell apart.
_VARIANTS: dict[str, tuple[dict[str, str], ...]] = {
    "http_requests_total": tuple(
        {"handler": handler, "status": status}
        for status in ("2xx", "5xx")
        for handler in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate", "/metrics")
    ),
    "vllm:request_success_total": (
        {"finished_reason": "stop"},
        {"finished_reason": "abort"},
        {"finished_reason": "error"},
    ),
    "vllm:prompt_tokens_by_source_total": ({"source": "local_compute"}, {"source": "local_cache_hit"}),
    "vllm:num_requests_waiting_by_reason": ({"reason": "capacity"}, {"reason": "deferred"}),
    "vllm:num_requests_running": ({"engine": "0"}, {"engine": "1"}, {"server": "http://a"}),
    "sglang:num_running_reqs": (
        {"dp_rank": "0", "tp_rank": "0"},
        {"dp_rank": "0", "tp_rank": "1"},
        {"dp_rank": "1", "tp_rank": "0"},
        {"dp_rank": "0", "tp_rank": "0", "priority": "3"},
    ),
    "sglang:realtime_tokens_total": ({"mode": "prefill_compute"}, {"mode": "decode"}),
    "sglang:cuda_graph_passes_total": (
        {"mode": "decode_cuda_graph"},
        {"mode": "decode_none"},
        {"mode": "prefill"},
    ),
    "sglang:http_responses_total": ({"status_code": "200"}, {"status_code": "503"}),
    "node_cpu_seconds_total": tuple(
        {"cpu": cpu, "mode": mode} for cpu in "01" for mode in ("idle", "iowait", "nice", "user", "steal")
    ),
    "nvidia_smi_compute_app_used_memory_bytes": tuple(
        {"pid": str(pid), "process_name": name} for pid, name in enumerate(_PROCESSES, 1)
    ),
    "llmdiag_gpu_clock_event_seconds_total": _REASONS,
    "llmdiag_gpu_clock_event_active": _REASONS,
    "llmdiag_gpu_ecc_errors_total": tuple(
        {"kind": kind, "lifetime": lifetime}
        for kind in ("corrected", "uncorrected")
        for lifetime in ("volatile", "aggregate")
    ),
    "llmdiag_gpu_remapped_rows_total": ({"cause": "correctable"}, {"cause": "uncorrectable"}),
    "node_memory_numa_other_node_total": _NUMA,
    "node_memory_numa_local_node_total": _NUMA,
    "vllm:mooncake_store_operation_failed_keys_total": tuple(
        {"operation": operation} for operation in ("get", "batch_put", "save", "store")
    ),
    "llmdiag_requests_total": ({"status": "ok"}, {"status": "aborted"}, {"status": "error"}),
    "llmdiag_tenant_token_share_ratio": ({"tenant": "a"}, {"tenant": "b"}, {"tenant": "other"}),
    "process_resident_memory_bytes": ({}, {"pod": "chat-backend-0"}),
}
_CONTAINERS = ({"container": "vllm"}, {"container": ""}, {"container": "POD"})
_STAGED = ({"stage": "prefill_forward"}, {"stage": "chunked_prefill"}, {"stage": "decode_forward"})
_DEVICES = tuple(
    {"device": device}
    for device in (
        "eth0",
        "lo",
        "veth1",
        "cali2",
        "cni0",
        "flannel.1",
        "docker0",
        "br-3",
        "lxc4",
        "cilium_host",
    )
)
_BOUNDS = ("0.1", "0.5", "1.0", "2.5", "10", "+Inf")
# Observations a sample in each bucket: many beyond the last bound, and hardly one.
_FLAT, _STEEP = np.full(6, 0.7), np.array([3.0, 1.5, 0.7, 0.3, 0.05, 0.002])


def made_up() -> list[RawSeries]:
    """For every name, series on several instances: new names on one, every spelling and age on
    others; with gaps, jitter, resets, late starts, staleness and unsupported values."""
    random = np.random.default_rng(20261129)
    series: dict[tuple[tuple[str, str], ...], RawSeries] = {}
    for kind, select in _used():
        for place, name in enumerate(select.names):
            for spelled, wire in enumerate(spellings(name)):
                for labels in _labels(name, place, spelled):
                    for one in make(kind, wire, labels, random):
                        series.setdefault(tuple(sorted(one.labels.items())), one)
    return list(series.values())


def _used() -> list[tuple[str, Select]]:
    found: dict[tuple[str, Select], None] = {}
    for engine in ENGINES:
        for definition in engine.signals.values():
            if expr := getattr(definition, "expr", None):
                found.update(dict.fromkeys(read_from(expr)))
    return list(found)


def read_from(expr: Expr) -> Iterator[tuple[str, Select]]:
    """What ``expr`` reads, each with the kind of series it is: ``gauge``, ``counter``, ``buckets``."""
    match expr:
        case Gauge():
            yield "gauge", expr.select
        case Rate() | Increase():
            yield "counter", expr.select
        case Quantile():
            yield "buckets", expr.select
        case Aggregate() | Scale() | Clamp() | Bit() | Keep():
            yield from read_from(expr.expr)
        case Binary():
            yield from itertools.chain(read_from(expr.left), read_from(expr.right))
        case Unless():
            yield from itertools.chain(read_from(expr.expr), read_from(expr.other))
        case FirstOf():
            yield from itertools.chain.from_iterable(map(read_from, expr.exprs))


def variants(name: str) -> tuple[dict[str, str], ...]:
    """The label sets beside the target's own that the conditions on ``name`` tell apart."""
    if "per_stage" in name:
        return _STAGED
    if name.startswith("node_network"):
        return _DEVICES
    if name.startswith("container_"):
        return _CONTAINERS
    return _VARIANTS.get(name, ({},))


def _labels(name: str, place: int, spelled: int) -> Iterator[dict[str, str]]:
    # Instance "all" carries every name at once, as releases around a rename do.
    for instance in ("all", f"age{place}-spelling{spelled}"):
        for variant in variants(name):
            gpu = {"UUID": "GPU-1", "gpu": "0"} if name.startswith("DCGM") else {}
            uuid = {"uuid": "1"} if name.startswith(("nvidia", "llmdiag_gpu")) else {}
            yield {"instance": instance, "job": "made-up", **gpu, **uuid, **variant}


def make(kind: str, name: str, labels: dict[str, str], random: np.random.Generator) -> Iterator[RawSeries]:
    """Series of ``name``: one of a ``gauge`` or ``counter``, one for each bound of ``buckets``."""
    times = _times(random)
    if kind == "gauge":
        yield RawSeries({"__name__": name, **labels}, times, _gauge(name, len(times), random))
    elif kind == "counter":
        # Shares of time on both sides of the whole, some in nanoseconds.
        each = 2.5e9 if "VIOLATION" in name else 2.5 if "pressure" in name else 1.0
        counts = _counter(random.poisson(3.0, len(times)) * each, random)
        yield RawSeries({"__name__": name, **labels}, times, counts)
    else:
        grown = np.zeros(len(times))
        reset = int(random.integers(1, len(times)))
        flat = random.random() < 0.3 and labels["job"] != "fleet"
        shares = _FLAT if flat else _STEEP ** random.uniform(0.7, 1.3)
        for bound, share in zip(_BOUNDS, shares, strict=True):
            grown = grown + random.poisson(share, len(times))
            counts = np.concatenate((np.cumsum(grown[:reset]), np.cumsum(grown[reset:])))
            yield RawSeries({"__name__": f"{name}_bucket", **labels, "le": bound}, times, counts)


def _times(random: np.random.Generator) -> np.ndarray:
    step = float(random.choice([2.0, 5.0, 15.0]))
    first = START + (float(random.uniform(30, 90)) if random.random() < 0.3 else 0.0)
    times = np.arange(first, START + SECONDS, step)
    times = times + random.uniform(-0.2, 0.2, len(times))
    gap = START + float(random.uniform(60, 180))
    kept = (times < gap) | (times > gap + float(random.choice([0.0, 20.0, 70.0])))
    return np.round(times[kept], 3)


def _counter(growth: np.ndarray, random: np.random.Generator) -> np.ndarray:
    counts = np.cumsum(growth) + float(random.choice([0.0, 1.0, 1e6]))
    if random.random() < 0.5:
        reset = int(random.integers(1, len(counts)))
        counts[reset:] -= counts[reset - 1]
        counts[reset:] = np.maximum.accumulate(np.maximum(counts[reset:], 0.0))
    if random.random() < 0.3:
        counts[random.integers(0, len(counts), 3)] = np.nan
    if random.random() < 0.1:
        counts[:] = 9223372036854775794.0
    return counts


def _gauge(name: str, count: int, random: np.random.Generator) -> np.ndarray:
    if "REASONS" in name:
        values = random.choice([0.0, 1.0, 4.0, 0x20, 0x44, 0x88, 9.223372036854776e18], count)
    elif random.random() < 0.5:
        values = random.uniform(-0.2, 1.2, count)
    else:
        values = random.integers(0, 90, count).astype(float)
    if random.random() < 0.3:
        values[random.integers(0, count, 3)] = np.nan
    if name.startswith("DCGM") and random.random() < 0.4:
        values[random.integers(0, count, 5)] = 9.223372036854776e18
    return values
