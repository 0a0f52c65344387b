"""What a run of the simulator leaves behind: the truth, before any exporter has rounded or lost it.

Arrays are on the scrape grid: row i is what a scrape at ``times[i]`` would find. Counters are since the
window's start and never reset here (the telemetry makes the resets out of ``Run.restarts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diag.model import Floats
from diag.simulate.plan import Plan

__all__ = ["HISTOGRAMS", "Call", "Card", "Engine", "Node", "Run"]

HISTOGRAMS: Mapping[str, tuple[float, ...]] = {
    "ttft_seconds": (.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1., 2.5, 5., 7.5, 10., 20., 40., 80., 160., 640., 2560.),
    "inter_token_seconds": (.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1., 2.5, 5., 7.5, 10., 20., 40., 80.),
    "e2e_seconds": (.3, .5, .8, 1., 1.5, 2., 2.5, 5., 10., 15., 20., 30., 40., 50., 60., 120., 240., 480., 960., 1920., 7680.),
    "queue_seconds": (.3, .5, .8, 1., 1.5, 2., 2.5, 5., 10., 15., 20., 30., 40., 50., 60., 120., 240., 480., 960., 1920., 7680.),
    "prefill_seconds": (.3, .5, .8, 1., 1.5, 2., 2.5, 5., 10., 15., 20., 30., 40., 50., 60., 120., 240., 480., 960., 1920., 7680.),
    "decode_seconds": (.3, .5, .8, 1., 1.5, 2., 2.5, 5., 10., 15., 20., 30., 40., 50., 60., 120., 240., 480., 960., 1920., 7680.),
    "prompt_tokens": (1., 2., 5., 10., 20., 50., 100., 200., 500., 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5),
    "computed_tokens": (1., 2., 5., 10., 20., 50., 100., 200., 500., 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5),
    "output_tokens": (1., 2., 5., 10., 20., 50., 100., 200., 500., 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5),
    "step_tokens": (1., 8., 16., 32., 64., 128., 256., 512., 1024., 2048., 4096., 8192., 16384.),
}  # fmt: skip
"""Upper bounds, without +Inf, as vLLM 0.32 has them (checked against the recorded page by the telemetry's tests)."""


@dataclass(slots=True, eq=False)
class Engine:
    """One replica. ``gauges``/``counters``: name → shape (n,). ``histograms``: name → cumulative-in-time counts per
    bucket (not cumulative over bounds), shape (n, len(bounds) + 1); ``sums``: name → shape (n,).

    gauges: running, waiting, waiting_capacity, waiting_deferred, kv_used_ratio, resident_bytes.
    counters: prompt_tokens, generation_tokens, computed_tokens, cached_tokens, external_tokens, queries_tokens,
    hits_tokens, preemptions, finished_stop, finished_length, finished_abort, finished_error, http_2xx, http_4xx,
    http_5xx, steps, busy_seconds (GPU), cpu_seconds, draft_tokens, accepted_tokens, transfers, transfer_failures,
    transfer_expired, lookup_misses (of the one that asks and the one that is asked), client_aborts, prefilled_tokens
    (every token that a step prefilled, after a preemption again), evicted_blocks. Of a prompt's tokens each is
    counted once when its first token comes: prompt = computed + cached (this replica's) + external."""

    name: str
    gauges: dict[str, Floats] = field(default_factory=dict)
    counters: dict[str, Floats] = field(default_factory=dict)
    histograms: dict[str, Floats] = field(default_factory=dict)
    sums: dict[str, Floats] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Card:
    """One GPU. Arrays of shape (n,): utilization_ratio, clock_ratio (of the maximum), power_watts, celsius,
    thermal_seconds, power_cap_seconds, brake_seconds (time each held the clock down, cumulative),
    foreign_sm_ratio, foreign_memory_bytes, power_limit_watts, link_ratio, link_errors, energy_joules."""

    host: str
    index: int
    engine: str
    rows: dict[str, Floats] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Node:
    """One host. Arrays of shape (n,): cpu_busy_ratio, cpu_throttled_ratio, load, cpu_pressure_ratio,
    memory_available_bytes, swap_bytes, major_faults (cumulative), oom_kills (cumulative), backend_resident_bytes,
    far_ratio, retransmits and segments (cumulative), drops (cumulative), fabric_errors, fabric_downs
    (cumulative)."""

    name: str
    rows: dict[str, Floats] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Call:
    """One request as everybody saw it; NaN where it never came to it. Times are seconds since the window's
    start. ``sent``: when the client wanted it; ``reached``: at the gateway; ``arrived``: at the engine's API
    server; ``queued``: at the scheduler; ``scheduled``, ``first_token``, ``ended``: in the engine; ``answered``: first
    token at the client; ``closed``: end at the client. ``status``: ok, error, aborted, or "" while open.
    ``gateway_seconds``: held in the gateway before it was passed on; ``connect_seconds``: the gateway's to the engine.
    ``cached_tokens``: from anywhere; ``output_tokens``: that the client got."""

    number: int
    tenant: str
    session: str
    turn: int
    replica: str
    prompt_tokens: int
    head_tokens: int
    history_tokens: int
    sent: float
    reached: float = np.nan
    arrived: float = np.nan
    queued: float = np.nan
    scheduled: float = np.nan
    first_token: float = np.nan
    ended: float = np.nan
    answered: float = np.nan
    closed: float = np.nan
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    structured: bool = False
    adapter: str = ""
    status: str = ""
    http_status: int = 0
    gateway_seconds: float = np.nan
    connect_seconds: float = np.nan


@dataclass(slots=True, eq=False)
class Run:
    """A finished run. ``times``: the scrape grid, seconds since the window's start, shape (n,).
    ``restarts``: (replica, down since, up again; inf: never). ``log``: (time, replica, text) of what an engine
    would have written beyond its periodic status lines."""

    plan: Plan
    times: Floats
    engines: list[Engine]
    cards: list[Card]
    nodes: list[Node]
    calls: list[Call]
    restarts: list[tuple[str, float, float]] = field(default_factory=list)
    log: list[tuple[float, str, str]] = field(default_factory=list)
    gateway_in_flight: Floats = field(default_factory=lambda: np.zeros(0))
    gateway_waiting: Floats = field(default_factory=lambda: np.zeros(0))
    gateway_504: Floats = field(default_factory=lambda: np.zeros(0))


Bools = NDArray[np.bool_]
