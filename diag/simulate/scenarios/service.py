"""The healthy service that every scenario starts from: topology, model, traffic, exporters, small mishaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diag.simulate.plan import (
    Balancing,
    Client,
    Degradation,
    Gateway,
    Host,
    Lengths,
    Machine,
    Plan,
    Replica,
    Settings,
    Shown,
)
from diag.simulate.profiles import Profile, constant
from diag.simulate.scenarios.confounders import sprinkle
from diag.simulate.scenarios.draw import Draw
from diag.simulate.scenarios.machines import (
    MACHINES,
    Work,
    capacity_per_second,
    drafting,
    mean_tokens,
    running,
    slower,
    work,
)

__all__ = ["healthy"]

_REQUESTS = (1_500.0, 9_000.0)  # of a whole incident
_REPLICA_RATES = (0.2, 0.8)  # requests a second
_CLEAR_SECONDS = 300.0  # what befalls the telemetry by chance keeps this far from the onset
_DRIFT_STEP_SECONDS = 150.0
_DOCUMENTS_RATIO = 0.3


def healthy(
    draw: Draw,
    name: str = "healthy",
    *,
    parallel: tuple[int, ...] = (1, 2, 4),
    least_replicas: int = 1,
    least_hosts: int = 1,
) -> Plan:
    """A service at 30 to 65 % of its capacity in which nobody is hurt, with its innocent oddities.

    ``parallel``: tensor-parallel sizes a scenario can do with; ``least_replicas``, ``least_hosts``: what it
    needs."""
    hosts, seats, parallel_size = _topology(draw, parallel, max(least_replicas, least_hosts), least_hosts)
    caching = draw.chance(0.95)
    drafted = draw.pick((2, 3, 4)) if draw.chance(0.12) else 0
    clients = _clients(draw, 1.6 if len(seats) > 4 else 1.0)
    asked = work(clients, caching)
    flags = Settings(prefix_caching=caching, speculative_tokens=drafted, tensor_parallel=parallel_size)
    machine, rate = _machine(draw, asked, len(seats), flags)
    clients = _timed(draw, clients, rate * len(seats) / asked.requests_per_second)
    settings = _settings(draw, machine, asked, clients, rate, flags)
    shown = _shown(draw)
    replicas = tuple(
        Replica(
            f"{shown.engine}-{number}:{8000 if shown.engine == 'vllm' else 30000}",
            host, gpus, settings, machine, uptime_seconds=draw.about(3e3, 1e6),
        )
        for number, (host, gpus) in enumerate(seats)
    )  # fmt: skip
    plan = Plan(
        name=f"{name}-{draw.seed}",
        seed=draw.seed,
        seconds=draw.seconds,
        step_seconds=15.0 if draw.chance(0.75) else 30.0,
        start=1_780_000_000.0 + 60.0 * int(draw.rng.integers(0, 500_000)),
        hosts=hosts,
        replicas=replicas,
        clients=clients,
        gateway=_gateway(draw),
        shown=shown,
        degradation=_degradation(draw),
    )
    return sprinkle(plan, draw)


def _topology(
    draw: Draw, sizes: tuple[int, ...], least_replicas: int, least_hosts: int
) -> tuple[tuple[Host, ...], list[tuple[str, tuple[int, ...]]], int]:
    """Hosts, a seat (host, GPUs) for each replica, and the tensor-parallel size."""
    count = max(draw.pick(draw.conditions.replicas), least_replicas)
    per_node = max(draw.pick(draw.conditions.gpus_per_node), min(sizes))
    parallel = draw.pick(tuple(size for size in sizes if size <= per_node))
    most = min(per_node // parallel, -(-count // least_hosts))
    together = int(draw.rng.integers(1, most + 1)) if draw.chance(0.6) else most
    if least_hosts > 1 and -(-count // together) < least_hosts:
        together = 1
    seats = [
        (f"node-{number // together}", tuple(range(slot * parallel, (slot + 1) * parallel)))
        for number in range(count)
        for slot in (number % together,)
    ]
    cpus, memory = draw.pick((32, 48, 64, 96)), draw.pick((256e9, 512e9, 1024e9))
    hosts = tuple(
        Host(
            name=host,
            cpus=cpus,
            memory_bytes=memory,
            other_cpu_ratio=constant(draw.between(0.04, 0.25)),
            far_ratio=constant(draw.between(0.0, 0.06)),
            network_seconds=constant(draw.about(0.0002, 0.002)),
            retransmit_ratio=constant(draw.about(1e-5, 1e-3)),
            room_celsius=constant(draw.between(20.0, 27.0)),
        )
        for host in sorted({host for host, _ in seats})
    )
    return hosts, seats, parallel


def _clients(draw: Draw, longer: float) -> tuple[Client, ...]:
    """Two to five tenants: mostly chats over several turns, some that ask once about long documents. Large
    services get ``longer`` texts rather than tens of thousands of requests."""
    count = int(draw.rng.integers(2, 6))
    weights = np.sort(draw.rng.dirichlet(np.full(count, 4.0)))[::-1]
    documents: set[int] = set()
    for number in range(1, count):
        # With nearly as many of them as chats a median would jump between the two.
        if draw.chance(0.5) and sum(weights[[*documents, number]]) <= _DOCUMENTS_RATIO:
            documents.add(number)
    return tuple(
        (_documents if number in documents else _chat)(
            draw, f"t-{chr(97 + number)}", float(weights[number]), longer
        )
        for number in range(count)
    )


def _chat(draw: Draw, tenant: str, weight: float, longer: float) -> Client:
    turns = Lengths(draw.between(2.0, 5.0), 0.4, 1, 12)
    own_head = draw.chance(0.6)
    return Client(
        tenant=tenant,
        sessions_per_second=constant(weight / mean_tokens(turns)),
        turns=turns,
        think_seconds=draw.between(10.0, 30.0),
        head=f"system-{tenant}" if own_head else "system",
        head_tokens=int(draw.about(150.0, 1_500.0)) if own_head else 500,
        message_tokens=Lengths(longer * draw.about(120.0, 500.0), draw.between(0.4, 0.8), 8, 4_000),
        output_tokens=Lengths(longer * draw.about(160.0, 400.0), draw.between(0.35, 0.6), 4, 2_000),
        history_limit_tokens=constant(16_000.0),
        leave_ratio=constant(draw.between(0.0, 0.004)),
        structured_ratio=constant(draw.between(0.0, 0.15) if draw.chance(0.4) else 0.0),
    )


def _documents(draw: Draw, tenant: str, weight: float, longer: float) -> Client:
    return Client(
        tenant=tenant,
        sessions_per_second=constant(weight),
        turns=Lengths(1.0, 0.0, 1, 1),
        head=f"documents-{tenant}",
        head_tokens=int(draw.about(100.0, 900.0)),
        message_tokens=Lengths(longer * draw.about(1_200.0, 3_500.0), draw.between(0.3, 0.6), 64, 12_000),
        output_tokens=Lengths(longer * draw.about(100.0, 250.0), draw.between(0.35, 0.6), 4, 1_200),
        history_limit_tokens=constant(0.0),
        leave_ratio=constant(draw.between(0.0, 0.004)),
    )


def _machine(draw: Draw, asked: Work, replicas: int, flags: Settings) -> tuple[Machine, float]:
    """A model and the requests a second of one replica. The speed of the cards is what gives: the service
    shall be busy for 30 to 65 % with a rate that makes some thousand requests of an incident."""
    machine = draw.pick(MACHINES[flags.tensor_parallel])
    wanted = draw.about(*_REQUESTS) / draw.seconds / replicas
    wanted = min(max(wanted, _REPLICA_RATES[0]), _REPLICA_RATES[1], _REQUESTS[1] / draw.seconds / replicas)
    load = draw.between(0.32, 0.6)
    capacity = capacity_per_second(machine, flags, asked)
    factor = min(max(load * capacity / wanted, 0.7), 4.0)
    machine = slower(machine, factor)
    return machine, load * capacity_per_second(machine, flags, asked)


def _timed(draw: Draw, clients: tuple[Client, ...], factor: float) -> tuple[Client, ...]:
    """The load over the window: a slow drift that all share, and bursts of each tenant's own."""
    points = np.arange(0.0, draw.seconds + _DRIFT_STEP_SECONDS, _DRIFT_STEP_SECONDS)
    period = draw.between(4.0, 24.0) * 3600.0
    swing = draw.between(0.0, 0.15) * np.sin(2 * np.pi * (points / period + draw.between(0.0, 1.0)))
    made = []
    for client in clients:
        burst = np.clip(draw.rng.normal(0.0, draw.between(0.0, 0.1), points.size), -0.3, 0.3)
        values = client.sessions_per_second.values[0] * factor * (1.0 + swing) * (1.0 + burst)
        profile = Profile(tuple(points.tolist()), tuple(values.tolist()))
        made.append(replace(client, sessions_per_second=profile))
    return tuple(made)


def _settings(
    draw: Draw,
    machine: Machine,
    asked: Work,
    clients: tuple[Client, ...],
    rate: float,
    flags: Settings,
) -> Settings:
    """A pool that healthy traffic fills to 20 to 60 % at its peaks, and that the longest prompt fits into."""
    batch = running(drafting(machine, flags), asked, rate)
    peak_tokens = (batch + 3.0 * np.sqrt(batch) + 1.0) * asked.context
    longest = max(client.message_tokens.most + client.head_tokens for client in clients)
    tokens = max(peak_tokens / draw.between(0.2, 0.5), 4.0 * longest)
    return replace(
        flags,
        max_num_seqs=draw.pick((64, 128, 256)),
        max_num_batched_tokens=draw.pick((2048, 4096, 8192)),
        kv_blocks=int(tokens / 16) + 1,
        max_model_len_tokens=draw.pick((32_768, 65_536, 131_072)),
    )


def _gateway(draw: Draw) -> Gateway:
    balancing = Balancing.STICKY if draw.chance(0.8) else Balancing.CACHE_AWARE
    return Gateway(balancing=((0.0, balancing),), delay_seconds=constant(draw.about(0.0005, 0.004)))


def _shown(draw: Draw) -> Shown:
    """Most exporters are there most of the time."""
    missing = draw.conditions.missing_ratio
    gpu = draw.pick(("llmdiag", "llmdiag", "dcgm", "nvidia_gpu_exporter"))
    requests = "" if draw.chance(missing) else "gateway" if draw.chance(0.15) else "client"
    return Shown(
        engine="sglang" if draw.chance(0.15) else "vllm",
        gpu="" if draw.chance(missing) else gpu,
        node=not draw.chance(missing),
        records=requests == "client",
        session_ids=not draw.chance(2.0 * missing),
        cached_tokens=not draw.chance(3.0 * missing),
        gateway_log=requests == "gateway",
        engine_log=not draw.chance(missing),
    )


def _degradation(draw: Draw) -> Degradation:
    """Lost scrapes and noise all the time; now and then a gap of five minutes, away from the onset."""
    noise = draw.conditions.noise_factor
    gaps: tuple[tuple[float, float], ...] = ()
    if draw.chance(0.12):
        early = (120.0, draw.onset - _CLEAR_SECONDS - 300.0)
        late = (draw.onset + _CLEAR_SECONDS, draw.seconds - 360.0)
        spans = tuple(span for span in (early, late) if span[1] > span[0])
        if spans:
            start = draw.between(*draw.pick(spans))
            gaps = ((start, start + 300.0),)
    return Degradation(
        lost_ratio=min(draw.between(0.0, 0.02) * noise, 0.04),
        gaps=gaps,
        jitter_seconds=draw.between(0.02, 0.3),
        noise_ratio=draw.between(0.005, 0.02) * noise,
    )
