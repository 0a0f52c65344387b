"""What a simulated service is and what befalls it: the whole input of the simulator, as plain records.

A scenario writes a ``Plan``; ``diag.simulate.serving`` runs it; ``diag.simulate.telemetry`` shows it as
the exporters would. All times are seconds since the window's start; every default is healthy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from diag.simulate.profiles import Profile, constant

__all__ = [
    "Balancing", "Client", "Degradation", "Fabric", "Gateway", "Gpu", "Host", "Lengths", "Machine", "Mark",
    "Plan", "Policy", "Preemption", "Replica", "Restart", "ScriptedCall", "Settings", "Shown", "Truth",
]  # fmt: skip

_ONE = constant(1.0)
_ZERO = constant(0.0)


class Policy(StrEnum):
    """Who is admitted next."""

    FCFS = "fcfs"
    PRIORITY = "priority"
    SHORTEST = "shortest"
    TOKEN_COUNTER = "token_counter"


class Preemption(StrEnum):
    """What happens to the KV blocks of a request that is evicted from the running batch."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


class Balancing(StrEnum):
    """How the router picks a replica."""

    ROUND_ROBIN = "round_robin"
    STICKY = "sticky"
    LEAST_LOADED = "least_loaded"
    CACHE_AWARE = "cache_aware"


@dataclass(frozen=True, slots=True)
class Machine:
    """The cost model of one model on its GPUs, in seconds. A step of p prompt tokens at contexts c and b
    decoding sequences of total context C takes

        overhead + prefill_base·[p > 0] + p·prefill_token + Σ(pairs attended)·prefill_pair
        + decode_base·[b > 0] + b·decode_sequence + C·decode_context
    """

    name: str = "llama-3.1-8b"
    overhead_seconds: float = 0.004
    prefill_token_seconds: float = 60e-6
    prefill_pair_seconds: float = 4e-9
    decode_base_seconds: float = 0.012
    decode_sequence_seconds: float = 0.00025
    decode_context_seconds: float = 6e-8
    kv_bytes_per_token: float = 131_072.0
    full_watts_share: float = 0.85
    prefill_base_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Engine flags that matter to the mechanisms; named as vLLM names them where it has them."""

    max_num_seqs: int = 128
    max_num_batched_tokens: int = 4096
    chunked_prefill: bool = True
    long_prefill_threshold_tokens: int = 0  # 0: none
    max_long_partial_prefills: int = 1
    kv_blocks: int = 20_000
    block_size_tokens: int = 16
    max_model_len_tokens: int = 131_072
    prefix_caching: bool = True
    reserve_full_isl: bool = True
    policy: Policy = Policy.FCFS
    preemption: Preemption = Preemption.RECOMPUTE
    swap_bytes_per_second: float = 50e9
    max_captured_batch: int = 512  # larger batches, or 0 = all of them, run without CUDA graphs
    eager_factor: float = 1.0  # how much longer a decode step then takes
    speculative_tokens: int = 0
    max_loras: int = 0  # 0: no adapters
    tensor_parallel: int = 1
    version: str = "0.32.0"


@dataclass(frozen=True, slots=True)
class Restart:
    """The engine process ends at ``time`` and serves again ``down_seconds`` later with ``settings``
    (None: the same). Work in flight is lost, the prefix cache and all counters start empty.
    ``attempts``: start-ups that fail before; ``reason``: "crash", "deploy", "bind" or "xid".
    ``lost_series``: the metrics page is gone meanwhile (True for every real restart)."""

    time: float
    down_seconds: float = 45.0
    settings: Settings | None = None
    reason: str = "deploy"
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """What acts on one card. ``resistance``: thermal resistance, multiple of the healthy card's;
    ``clock_cap_ratio``: an outside brake, of the maximum clock; ``power_limit_ratio``: enforced limit, of the
    default one; ``foreign_sm_ratio``/``foreign_memory_bytes``: another process on the card; it takes its SM
    share from the engine. ``slow_factor``: steps take longer with clean clocks (fewer watts per clock).
    ``link_ratio``: PCIe or NVLink bandwidth left (widths and generations are shown from it); collectives of a
    tensor-parallel step slow down by it; ``link_errors_per_second``: replays. ``xids``: (time, code);
    ``uncorrectable_errors``: times of ECC errors."""

    resistance: Profile = _ONE
    air_celsius: Profile = constant(27.0)
    clock_cap_ratio: Profile = _ONE
    power_limit_ratio: Profile = _ONE
    foreign_sm_ratio: Profile = _ZERO
    foreign_memory_bytes: Profile = _ZERO
    slow_factor: Profile = _ONE
    link_ratio: Profile = _ONE
    link_errors_per_second: Profile = _ZERO
    xids: tuple[tuple[float, int], ...] = ()
    uncorrectable_errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with CPUs and GPUs. ``other_cpu_ratio``: CPU taken by others, 0 … 1, of all CPUs;
    ``cpu_quota_ratio``: share of its need that the container's quota leaves the engine (1: enough);
    ``leak_bytes``: what the process called ``leaking`` ("backend" or "engine") holds beyond its usual;
    ``far_ratio``: remote NUMA accesses, 0 … 1; ``network_seconds``/``retransmit_ratio``/``drops_per_second``: of
    this host's network; ``fabric_errors_per_second``: InfiniBand symbol errors that cost nobody anything."""

    name: str = "node-0"
    cpus: int = 64
    memory_bytes: float = 512e9
    other_cpu_ratio: Profile = constant(0.12)
    cpu_quota_ratio: Profile = _ONE
    leak_bytes: Profile = _ZERO
    leaking: str = "backend"
    far_ratio: Profile = constant(0.03)
    network_seconds: Profile = constant(0.0006)
    retransmit_ratio: Profile = constant(0.0005)
    drops_per_second: Profile = _ZERO
    fabric_errors_per_second: Profile = _ZERO
    room_celsius: Profile = constant(24.0)


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine instance. ``step_factor``: every step takes that much longer for a reason nobody exports;
    ``step_seconds``: time added to every step (host-side); ``front_seconds``: before a request reaches the
    scheduler (API server, tokeniser); ``pauses``: (time, seconds) in which nothing happens in the process;
    ``hangs``: (start, end) in which no step ends though health answers 200; ``hang_spins``: the GPU shows
    100 % at low power meanwhile, else 0 %; ``leak_blocks_per_second``: KV blocks that stay taken;
    ``leak_blocks_per_abort``: likewise, for each client that leaves; ``acceptance_ratio``: of draft tokens;
    ``grammar_seconds``: a step stalls that long for each structured request that begins;
    ``deferred``: requests parked for something that never comes, they hold sequence slots;
    ``eager``: since when every batch runs without CUDA graphs (1) or not (0)."""

    name: str
    host: str = "node-0"
    gpus: tuple[int, ...] = (0,)
    settings: Settings = field(default_factory=Settings)
    machine: Machine = field(default_factory=Machine)
    restarts: tuple[Restart, ...] = ()
    step_factor: Profile = _ONE
    step_seconds: Profile = _ZERO
    front_seconds: Profile = constant(0.002)
    pauses: tuple[tuple[float, float], ...] = ()
    hangs: tuple[tuple[float, float], ...] = ()
    hang_spins: bool = False
    leak_blocks_per_second: Profile = _ZERO
    leak_blocks_per_abort: float = 0.0
    acceptance_ratio: Profile = constant(0.75)
    grammar_seconds: Profile = _ZERO
    deferred: Profile = _ZERO
    eager: Profile = _ZERO
    uptime_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """A log-normal length in tokens, cut to ``least`` … ``most``."""

    median: float
    sigma: float = 0.5
    least: int = 1
    most: int = 100_000


@dataclass(frozen=True, slots=True)
class Client:
    """One kind of traffic. Sessions begin at ``sessions_per_second`` (Poisson); each has ``turns`` turns with
    ``think_seconds`` (mean) between answer and next question. A prompt is the shared head of
    ``head_tokens`` (equal ``head`` names share it), the kept history, and a new message. History beyond
    ``history_limit_tokens`` is trimmed away (0: every turn stands alone); it is a profile so that a client
    can stop trimming. ``head_stable_ratio``: share of requests whose head is byte-equal to the others'.
    ``output_factor`` multiplies answers; ``prompt_factor`` multiplies messages. ``leave_ratio`` of requests are
    given up after ``patience_seconds`` (mean); ``leave_seen``: the engine notices and stops; ``retries``: tries
    again after leaving or failing. ``structured_ratio``: of requests with a grammar. ``concurrency``: most
    requests this client keeps in flight (0: any number), the rest wait inside the client and its clock
    runs from when they wanted to be sent; ``concurrency_steps``: (time, ``concurrency`` from then on), ascending.
    ``timeout_seconds``: the client's own (0: none)."""

    tenant: str = "t-a"
    sessions_per_second: Profile = constant(0.2)
    turns: Lengths = Lengths(2.0, 0.4, 1, 200)
    think_seconds: float = 20.0
    head: str = "system"
    head_tokens: int = 400
    message_tokens: Lengths = Lengths(250.0, 0.6, 8)
    output_tokens: Lengths = Lengths(180.0, 0.5, 4)
    history_limit_tokens: Profile = constant(4000.0)
    head_stable_ratio: Profile = _ONE
    prompt_factor: Profile = _ONE
    output_factor: Profile = _ONE
    leave_ratio: Profile = _ZERO
    patience_seconds: float = 30.0
    leave_seen: bool = True
    retries: int = 0
    structured_ratio: Profile = _ZERO
    priority: int = 0
    adapter: str = ""
    concurrency: int = 0
    concurrency_steps: tuple[tuple[float, int], ...] = ()
    timeout_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One request that is given, not drawn: sent at ``time`` whatever happened before (a replayed recording,
    a worked example). ``prompt_tokens`` is the whole prompt: the shared head ``head`` of ``head_tokens``, then
    ``history_tokens`` that the session's earlier calls had, then what is new. ``leave_seconds``: after which the
    client goes (0: it stays), and the engine notices if ``leave_seen``. ``think_seconds``: sent so long after the
    session's call before it has ended, and not at ``time`` (negative: at ``time``, whatever came before)."""

    time: float
    prompt_tokens: int
    output_tokens: int
    tenant: str = "t-a"
    session: str = ""  # "": a session of its own
    turn: int = 0
    head: str = "system"
    head_tokens: int = 0
    history_tokens: int = 0
    priority: int = 0
    leave_seconds: float = 0.0
    leave_seen: bool = True
    think_seconds: float = -1.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """What stands between clients and engines. ``delay_seconds``: added on the way in (connect and upstream
    time, as the gateway's log shows it) or, with ``delay_outside``, where the gateway does not see it;
    ``jitter_ratio``: of the delay. ``max_in_flight``: its connection pool (0: any number): the rest wait in it;
    ``timeout_seconds``: answers that take longer become 504s (0: none); ``retries``: it tries again after a
    failure; ``error_ratio``: stray 502s. ``…_steps``: (time, the limit from then on), ascending."""

    balancing: tuple[tuple[float, Balancing], ...] = ((0.0, Balancing.STICKY),)
    affinity_weight: float = 0.7
    delay_seconds: Profile = constant(0.001)
    delay_outside: bool = False
    jitter_ratio: float = 0.3
    max_in_flight: int = 0
    max_in_flight_steps: tuple[tuple[float, int], ...] = ()
    timeout_seconds: float = 0.0
    timeout_steps: tuple[tuple[float, float], ...] = ()
    retries: int = 0
    error_ratio: Profile = _ZERO


@dataclass(frozen=True, slots=True)
class Fabric:
    """Sharing KV between replicas. A replica that lacks a prefix which another one holds fetches it at
    ``bytes_per_second``. ``flaps``: (start, end, host) while that host's links are down: transfers fail after
    ``timeout_seconds`` and are retried ``retries`` times, then recomputed. ``failure_ratio``: transfers that fail
    for another reason. ``stale``: (start, end, replica): peers believe that this replica holds what it does
    not; each belief costs it and them a failed look-up of ``lookup_seconds``."""

    bytes_per_second: float = 20e9
    setup_seconds: float = 0.004
    timeout_seconds: float = 1.5
    retries: int = 2
    lookup_seconds: float = 0.25
    flaps: tuple[tuple[float, float, str], ...] = ()
    failure_ratio: Profile = _ZERO
    stale: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of events.jsonl."""

    time: float
    kind: str
    target: str
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """Which exporters there are. ``gpu``: "dcgm", "nvidia_gpu_exporter", "llmdiag" or "". ``engine``: "vllm" or
    "sglang". ``records``: client request records; ``session_ids``/``cached_tokens``: whether these carry them."""

    engine: str = "vllm"
    gpu: str = "llmdiag"
    node: bool = True
    records: bool = True
    session_ids: bool = True
    cached_tokens: bool = True
    gateway_log: bool = False
    engine_log: bool = True
    events: bool = True
    up: bool = True


@dataclass(frozen=True, slots=True)
class Degradation:
    """What goes wrong with the telemetry itself. ``lost_ratio``: of scrapes; ``gaps``: (start, end) without any;
    ``jitter_seconds``: of scrape times; ``noise_ratio``: of gauges that are measured; ``frozen``: (start, end,
    replica): its page repeats itself; ``vanished``: (start, replica): its series end though it serves;
    ``renamed``: (start, replica): its engine series continue under other names; ``nan``: (start, replica)."""

    lost_ratio: float = 0.0
    gaps: tuple[tuple[float, float], ...] = ()
    jitter_seconds: float = 0.05
    noise_ratio: float = 0.02
    frozen: tuple[tuple[float, float, str], ...] = ()
    vanished: tuple[tuple[float, str], ...] = ()
    renamed: tuple[tuple[float, str], ...] = ()
    nan: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Truth:
    """The label. ``scope`` as in a verdict: ``{"instances": (…), "gpus": (…), "tenants": (…)}``; ``onset``: when the
    cause begins, None when nothing is wrong; ``accept``: further leading answers that are right."""

    causes: tuple[str, ...] = ()
    leading: str | None = None
    accept: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    scope: tuple[tuple[str, tuple[str, ...]], ...] = ()
    onset: float | None = None
    severity: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole incident. ``start``: unix seconds of the window's start; ``step_seconds``: between scrapes.
    ``cards``: (host name, GPU index) → what acts on it; GPUs that are not named are healthy. ``script``: requests
    that are sent besides those of ``clients``, ascending in time."""

    name: str
    seed: int
    seconds: float = 3600.0
    step_seconds: float = 15.0
    start: float = 1_780_000_000.0
    hosts: tuple[Host, ...] = (Host(),)
    replicas: tuple[Replica, ...] = (Replica("vllm-0:8000"),)
    cards: tuple[tuple[tuple[str, int], Gpu], ...] = ()
    clients: tuple[Client, ...] = (Client(),)
    script: tuple[ScriptedCall, ...] = ()
    gateway: Gateway = field(default_factory=Gateway)
    fabric: Fabric | None = None
    marks: tuple[Mark, ...] = ()
    shown: Shown = field(default_factory=Shown)
    degradation: Degradation = field(default_factory=Degradation)
    truth: Truth = field(default_factory=Truth)
    notes: str = ""
