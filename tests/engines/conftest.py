"""A real Prometheus that holds chosen samples, and the samples themselves."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import requests

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
from diag.signals.frame import Grid, RawSeries

START = 1795985774.0
SECONDS = 247.0

Answer = dict[tuple[tuple[str, str], ...], np.ndarray]


@dataclass(frozen=True)
class Store:
    """A running server that answers PromQL."""

    url: str

    def ask(self, query: str, grid: Grid) -> Answer:
        """Range query; values on the grid's times, NaN where the server gives none."""
        reply = requests.post(
            f"{self.url}/api/v1/query_range",
            data={"query": query, "start": grid.start, "end": grid.end, "step": grid.step},
            timeout=20,
        )
        body = reply.json()
        assert body["status"] == "success", f"{body} for {query}"
        return {self._key(row["metric"]): self._values(row["values"], grid) for row in body["data"]["result"]}

    @staticmethod
    def _key(metric: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name, value) for name, value in metric.items() if name != "__name__"))

    @staticmethod
    def _values(pairs: Sequence[tuple[float, str]], grid: Grid) -> np.ndarray:
        values = np.full(len(grid.times), np.nan)
        for moment, text in pairs:
            values[round((moment - grid.start) / grid.step)] = float(text)
        return values


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return found


def await_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        try:
            if requests.get(url, timeout=1).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.05)
    pytest.fail(f"{url} did not become ready")


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


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory, samples: list[RawSeries]) -> Iterator[Store]:
    """A Prometheus that holds ``samples``."""
    binary, tool = server_binary("prometheus"), server_binary("promtool")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "samples.om").write_text(open_metrics(samples))
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    subprocess.run(
        [tool, "tsdb", "create-blocks-from", "openmetrics", folder / "samples.om", folder / "data"],
        check=True,
        capture_output=True,
    )
    port = free_port()
    command = [
        binary,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_ready(process, f"http://127.0.0.1:{port}/-/ready")
        yield Store(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture(scope="session")
def victoria(tmp_path_factory: pytest.TempPathFactory, samples: list[RawSeries]) -> Iterator[Store]:
    """A VictoriaMetrics that holds ``samples``."""
    binary = server_binary("victoria-metrics")
    folder = tmp_path_factory.mktemp("victoria")
    port = free_port()
    command = [
        binary,
        f"-storageDataPath={folder}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_ready(process, f"http://127.0.0.1:{port}/health")
        lines = [
            json.dumps(
                {
                    "metric": dict(one.labels),
                    "values": one.values[~np.isnan(one.values)].tolist(),
                    "timestamps": np.rint(one.times[~np.isnan(one.values)] * 1000).astype(int).tolist(),
                }
            )
            for one in samples
        ]
        url = f"http://127.0.0.1:{port}"
        requests.post(f"{url}/api/v1/import", data="\n".join(lines), timeout=20).raise_for_status()
        requests.get(f"{url}/internal/force_flush", timeout=20).raise_for_status()
        yield Store(url)
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture(scope="session")
def samples(incidents: Path) -> list[RawSeries]:
    """The reference recording, and made-up series for every name in every engine file."""
    return [*recorded(incidents / "context_growth_reference"), *made_up()]


@pytest.fixture(scope="session")
def recorded_names(incidents: Path) -> frozenset[str]:
    """Metric names in two recordings, one of them with node_exporter's."""
    bundles = ("context_growth_reference", "kv_cache_exhaustion")
    return frozenset(s.labels["__name__"] for name in bundles for s in recorded(incidents / name))


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
# Label values that the conditions in the engine files tell apart.
_VARIANTS: dict[str, tuple[dict[str, str], ...]] = {
    "http_requests_total": (
        {"handler": "/v1/chat/completions", "status": "2xx"},
        {"handler": "/v1/completions", "status": "5xx"},
        {"handler": "/metrics", "status": "2xx"},
    ),
    "vllm:request_success_total": ({"finished_reason": "stop"}, {"finished_reason": "abort"}),
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
    "sglang:cuda_graph_passes_total": ({"mode": "decode_cuda_graph"}, {"mode": "decode_none"}),
    "sglang:http_responses_total": ({"status_code": "200"}, {"status_code": "503"}),
    "node_cpu_seconds_total": tuple(
        {"cpu": cpu, "mode": mode} for cpu in "01" for mode in ("idle", "iowait", "nice", "user", "steal")
    ),
    "nvidia_smi_compute_app_used_memory_bytes": (
        {"pid": "1", "process_name": "VLLM::EngineCore"},
        {"pid": "2", "process_name": "/usr/bin/python3.11"},
        {"pid": "3", "process_name": "./gpu_burn"},
    ),
    "llmdiag_gpu_clock_event_seconds_total": _REASONS,
    "llmdiag_gpu_clock_event_active": _REASONS,
    "llmdiag_gpu_ecc_errors_total": tuple(
        {"kind": kind, "lifetime": lifetime}
        for kind in ("corrected", "uncorrected")
        for lifetime in ("volatile", "aggregate")
    ),
    "llmdiag_gpu_remapped_rows_total": ({"cause": "correctable"}, {"cause": "uncorrectable"}),
    "node_memory_numa_other_node_total": ({"node": "0"}, {"node": "1"}),
    "node_memory_numa_local_node_total": ({"node": "0"}, {"node": "1"}),
    "vllm:mooncake_store_operation_failed_keys_total": ({"operation": "get"}, {"operation": "put"}),
    "llmdiag_requests_total": ({"status": "ok"}, {"status": "aborted"}, {"status": "error"}),
    "llmdiag_tenant_token_share_ratio": ({"tenant": "a"}, {"tenant": "b"}, {"tenant": "other"}),
    "process_resident_memory_bytes": ({}, {"pod": "chat-backend-0"}),
}
_CONTAINERS = ({"container": "vllm"}, {"container": ""}, {"container": "POD"})
_STAGED = ({"stage": "prefill_forward"}, {"stage": "decode_forward"})
_DEVICES = ({"device": "eth0"}, {"device": "lo"})
_BOUNDS = ("0.1", "0.5", "1.0", "2.5", "10", "+Inf")


def made_up() -> list[RawSeries]:
    """For every name, series on several instances: new names on one, every spelling and age on
    others; with gaps, jitter, resets, late starts, staleness and unsupported values."""
    random = np.random.default_rng(20261129)
    series: dict[tuple[tuple[str, str], ...], RawSeries] = {}
    for kind, select in _used():
        for place, name in enumerate(select.names):
            for spelled, wire in enumerate(spellings(name)):
                for labels in _labels(name, place, spelled):
                    for one in _make(kind, wire, labels, random):
                        series.setdefault(tuple(sorted(one.labels.items())), one)
    return list(series.values())


def _used() -> list[tuple[str, Select]]:
    found: dict[tuple[str, Select], None] = {}
    for engine in ENGINES:
        for definition in engine.signals.values():
            if expr := getattr(definition, "expr", None):
                found.update(dict.fromkeys(_kinds(expr)))
    return list(found)


def _kinds(expr: Expr) -> Iterator[tuple[str, Select]]:
    match expr:
        case Gauge():
            yield "gauge", expr.select
        case Rate() | Increase():
            yield "counter", expr.select
        case Quantile():
            yield "buckets", expr.select
        case Aggregate() | Scale() | Clamp() | Bit() | Keep():
            yield from _kinds(expr.expr)
        case Binary():
            yield from itertools.chain(_kinds(expr.left), _kinds(expr.right))
        case Unless():
            yield from itertools.chain(_kinds(expr.expr), _kinds(expr.other))
        case FirstOf():
            yield from itertools.chain.from_iterable(map(_kinds, expr.exprs))


def _labels(name: str, place: int, spelled: int) -> Iterator[dict[str, str]]:
    variants = _VARIANTS.get(name, ({},))
    if "per_stage" in name:
        variants = _STAGED
    if name.startswith("node_network"):
        variants = _DEVICES
    if name.startswith("container_"):
        variants = _CONTAINERS
    # Instance "all" carries every name at once, as releases around a rename do.
    for instance in ("all", f"age{place}-spelling{spelled}"):
        for variant in variants:
            gpu = {"UUID": "GPU-1", "gpu": "0"} if name.startswith("DCGM") else {}
            uuid = {"uuid": "1"} if name.startswith(("nvidia", "llmdiag_gpu")) else {}
            yield {"instance": instance, "job": "made-up", **gpu, **uuid, **variant}


def _make(kind: str, name: str, labels: dict[str, str], random: np.random.Generator) -> Iterator[RawSeries]:
    times = _times(random)
    if kind == "gauge":
        yield RawSeries({"__name__": name, **labels}, times, _gauge(name, len(times), random))
    elif kind == "counter":
        counts = _counter(random.poisson(3.0, len(times)).astype(float), random)
        yield RawSeries({"__name__": name, **labels}, times, counts)
    else:
        grown = np.zeros(len(times))
        reset = int(random.integers(1, len(times)))
        for bound in _BOUNDS:
            grown = grown + random.poisson(0.7, len(times))
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


@pytest.fixture(scope="session")
def grids() -> Callable[[], tuple[Grid, ...]]:
    """Grids that meet the samples in different ways: aligned, shifted, fine, coarse."""
    return lambda: (
        Grid(START, START + 245, 5.0, 30.0),
        Grid(START + 0.5, START + 240, 7.0, 15.0),
        Grid(START - 20, START + 300, 20.0, 61.5),
    )
