"""A small made-up run, so that what is shown is tested apart from the engine that would fill it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diag.model import Floats
from diag.simulate.observed import HISTOGRAMS, Call, Card, Engine, Node, Run
from diag.simulate.plan import Host, Plan, Replica
from diag.simulate.profiles import constant

STEP = 15.0


def _counter(times: Floats, rng: np.random.Generator, per_second: float) -> Floats:
    spans = np.diff(times, prepend=times[:1])
    return np.cumsum(rng.poisson(per_second * spans)).astype(np.float64)


def _histogram(
    times: Floats, rng: np.random.Generator, bounds: tuple[float, ...], middle: float
) -> tuple[Floats, Floats]:
    counts = np.zeros((times.size, len(bounds) + 1))
    sums = np.zeros(times.size)
    for row in range(1, times.size):
        seen = rng.lognormal(np.log(middle), 0.5, 7)
        np.add.at(counts[row], np.searchsorted(np.array(bounds), seen), 1.0)
        sums[row] = seen.sum()
    return counts.cumsum(axis=0), sums.cumsum()


_MIDDLES = {
    "ttft_seconds": 0.3, "inter_token_seconds": 0.03, "e2e_seconds": 6.0, "queue_seconds": 0.05,
    "prefill_seconds": 0.2, "decode_seconds": 5.0, "prompt_tokens": 900.0, "computed_tokens": 400.0,
    "output_tokens": 150.0, "step_tokens": 60.0,
}  # fmt: skip
_PER_SECOND = {
    "prompt_tokens": 400.0, "generation_tokens": 300.0, "computed_tokens": 150.0, "cached_tokens": 240.0,
    "queries_tokens": 400.0, "hits_tokens": 240.0, "finished_stop": 0.4, "finished_length": 0.1,
    "http_2xx": 0.5, "steps": 20.0, "busy_seconds": 0.4, "cpu_seconds": 0.6,
}  # fmt: skip
_SILENT = (
    "external_tokens", "preemptions", "finished_abort", "finished_error", "http_4xx", "http_5xx",
    "draft_tokens", "accepted_tokens", "transfers", "transfer_failures", "transfer_expired", "lookup_misses",
    "client_aborts",
)  # fmt: skip


def _engine(replica: Replica, times: Floats, rng: np.random.Generator) -> Engine:
    engine = Engine(replica.name)
    running = rng.integers(2, 9, times.size).astype(np.float64)
    waiting = rng.integers(0, 3, times.size).astype(np.float64)
    engine.gauges = {
        "running": running,
        "waiting": waiting,
        "waiting_capacity": waiting,
        "waiting_deferred": np.zeros(times.size),
        "kv_used_ratio": np.round(rng.uniform(0.1, 0.4, times.size), 4),
        "resident_bytes": np.full(times.size, 4.2e9),
    }
    engine.counters = {name: _counter(times, rng, rate) for name, rate in _PER_SECOND.items()}
    engine.counters["cached_tokens"] = np.minimum(
        engine.counters["cached_tokens"], engine.counters["prompt_tokens"]
    )
    engine.counters |= {name: np.zeros(times.size) for name in _SILENT}
    for name, bounds in HISTOGRAMS.items():
        engine.histograms[name], engine.sums[name] = _histogram(times, rng, bounds, _MIDDLES[name])
    return engine


def _card(host: str, index: int, engine: str, times: Floats) -> Card:
    flat = np.ones(times.size)
    return Card(
        host,
        index,
        engine,
        {
            "utilization_ratio": 0.8 * flat,
            "clock_ratio": flat,
            "power_watts": 560.0 * flat,
            "celsius": 58.0 * flat,
            "thermal_seconds": 0.25 * np.maximum(times - 600.0, 0.0),
            "power_cap_seconds": 0.02 * times,
            "brake_seconds": 0.0 * flat,
            "foreign_sm_ratio": np.where(times < 900.0, 0.0, 0.3),
            "foreign_memory_bytes": np.where(times < 900.0, 0.0, 2e9),
            "power_limit_watts": 700.0 * flat,
            "link_ratio": np.where(times < 900.0, 1.0, 0.5),
            "link_errors": np.floor(times / 100.0),
            "energy_joules": 560.0 * times,
        },
    )


def _node(host: Host, times: Floats) -> Node:
    flat = np.ones(times.size)
    return Node(
        host.name,
        {
            "cpu_busy_ratio": 0.3 * flat,
            "cpu_throttled_ratio": np.where(times < 900.0, 0.0, 0.4),
            "load": 20.0 * flat,
            "cpu_pressure_ratio": 0.05 * flat,
            "memory_available_bytes": 0.6 * host.memory_bytes * flat,
            "swap_bytes": 0.0 * flat,
            "major_faults": 0.1 * times,
            "oom_kills": np.where(times < 1200.0, 0.0, 1.0),
            "backend_resident_bytes": 9e8 * flat,
            "far_ratio": 0.04 * flat,
            "retransmits": 0.5 * times,
            "segments": 1000.0 * times,
            "drops": 0.0 * flat,
            "fabric_errors": 0.01 * times,
            "fabric_downs": np.where(times < 700.0, 0.0, 2.0),
        },
    )


def _calls(plan: Plan, rng: np.random.Generator) -> list[Call]:
    calls = []
    for number, sent in enumerate(np.sort(rng.uniform(0.0, plan.seconds, 300))):
        first = sent + rng.uniform(0.2, 1.0)
        closed = first + rng.uniform(2.0, 9.0)
        status = "aborted" if number % 10 == 0 else "ok"
        calls.append(
            Call(
                number,
                "t-a",
                f"s{number % 40}",
                number // 40,
                plan.replicas[number % len(plan.replicas)].name,
                900,
                300,
                200,
                float(sent),
                reached=sent + 0.001,
                arrived=sent + 0.011,
                queued=sent + 0.02,
                scheduled=sent + 0.05,
                first_token=first - 0.01,
                ended=closed - 0.01,
                answered=first,
                closed=closed,
                cached_tokens=300,
                output_tokens=150,
                status=status,
                http_status=200,
                gateway_seconds=0.01,
                connect_seconds=0.002,
            )
        )
    return calls


def synthetic(plan: Plan) -> Run:
    """A run of ``plan`` that has the shape of a real one and no physics."""
    rng = np.random.default_rng(plan.seed)
    times: Floats = np.arange(0.0, plan.seconds + 1e-9, plan.step_seconds)
    engines = [_engine(replica, times, rng) for replica in plan.replicas]
    cards = [
        _card(replica.host, index, replica.name, times) for replica in plan.replicas for index in replica.gpus
    ]
    downs = [
        (replica.name, restart.time, restart.time + restart.down_seconds)
        for replica in plan.replicas
        for restart in replica.restarts
    ]
    for replica, engine in zip(plan.replicas, engines, strict=True):
        _freeze_while_down(engine, times, [(down, up) for name, down, up in downs if name == replica.name])
    flight = np.full(times.size, 5.0)
    return Run(
        plan, times, engines, cards, [_node(host, times) for host in plan.hosts], _calls(plan, rng), downs,
        gateway_in_flight=flight, gateway_waiting=0.0 * flight, gateway_504=0.0 * flight,
    )  # fmt: skip


def _freeze_while_down(engine: Engine, times: Floats, downs: list[tuple[float, float]]) -> None:
    """Nothing counts while a process is down; its rows keep their last values."""
    for down, up in downs:
        inside = np.flatnonzero((times >= down) & (times <= up))
        if not inside.size:
            continue
        for rows in (engine.counters, engine.sums, engine.histograms):
            for name, row in rows.items():
                fresh = np.diff(row, axis=0, prepend=row[:1])
                fresh[inside] = 0.0
                rows[name] = fresh.cumsum(axis=0)


def planned(**changes: Any) -> Plan:
    """Two replicas on two hosts for half an hour."""
    plan: dict[str, Any] = {
        "name": "made_up",
        "seed": 3,
        "seconds": 1800.0,
        "step_seconds": STEP,
        "hosts": (Host("node-0", cpus=8, far_ratio=constant(0.04)), Host("node-1", cpus=8)),
        "replicas": (Replica("vllm-0:8000", "node-0"), Replica("vllm-1:8000", "node-1")),
    }
    return Plan(**{**plan, **changes})


@pytest.fixture(scope="session")
def run_of() -> Callable[..., Run]:
    """A made-up run of the usual plan with changes."""
    return lambda **changes: synthetic(planned(**changes))


@pytest.fixture(scope="session")
def captures(checkout: Path) -> Path:
    """The folder of recorded pages."""
    return checkout / "tests" / "captures"
