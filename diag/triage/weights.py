"""The one table of expert weights: how much each cue speaks for or against its hypothesis.

A row is (likelihood ratio when the prediction comes true, likelihood ratio when it does not, reason).
The ratios are expert guesses in round numbers, seeded by the strongest cues of the published
prototype; calibration will come with a labelled corpus. Each pair straddles 1 (tested).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["WEIGHTS", "Weight"]


@dataclass(frozen=True, slots=True)
class Weight:
    """``when_true`` > 1 > ``when_false``; ``group``: cues of one group are one vote (the strongest).
    ``driver`` marks the cue without which the hypothesis cannot be supported; ``root`` marks cues that
    only tell a root from a consequence: they are left aside once a supported cause explains it."""

    when_true: float
    when_false: float
    reason: str
    group: str = ""
    driver: bool = False
    root: bool = False


def _w(
    true: float, false: float, reason: str, group: str = "", *, driver: bool = False, root: bool = False
) -> Weight:
    return Weight(true, false, reason, group, driver, root)


WEIGHTS: Mapping[str, Mapping[str, Weight]] = {
    "context_growth": {
        "length": _w(5, 0.04, "lengths must rise", driver=True),
        "growth": _w(12, 0.05, "rising with the session is the mechanism itself", "growth", driver=True),
        "ramp": _w(6, 0.2, "growth climbs, giants jump", "growth"),
        "giants": _w(1.01, 0.05, "single giants are another cause", "growth"),
        "dose": _w(3, 0.4, "longer prompts wait longer"),
        "kv_fills": _w(1.5, 0.8, "longer contexts take more of the pool"),
        "answers_flat": _w(1.2, 0.03, "longer answers make longer histories by themselves"),
        "rate_flat": _w(1.3, 0.4, "a higher rate is another cause"),
    },
    "kv_cache_exhaustion": {
        "full": _w(6, 0.01, "the pool must be full", driver=True),
        "pressure": _w(4, 0.1, "somebody is evicted or waits for blocks"),
        "shrank": _w(
            10, 0.3, "a smaller pool makes it the root; with the same pool demand filled it", root=True
        ),
        "demand_flat": _w(1.5, 0.25, "otherwise demand filled the pool", root=True),
    },
    "prefix_cache_off": {
        "off": _w(20, 0.005, "a configuration fact", driver=True),
        "repeats": _w(4, 0.05, "caching helps only repeated prompts"),
        "switched": _w(8, 0.9, "switched off in the window: a trigger"),
        "route": _w(1.5, 0.3, "it costs prefill, and queue behind it"),
    },
    "prefix_cache_broken": {
        "hits": _w(12, 0.02, "hits must fall", "hits", driver=True),
        "hits_ratio": _w(4, 0.2, "the ratio falls with them", "hits"),
        "caching_on": _w(1.01, 0.001, "off is another cause"),
        "lengths_flat": _w(2, 0.1, "longer prompts are another cause"),
        "no_pressure": _w(1.5, 0.15, "a full pool evicts cached blocks"),
        "one_replica": _w(1.01, 0.04, "scattered sessions are another cause"),
        "everywhere": _w(1.5, 0.25, "a changed head misses on every replica and every turn"),
        "no_restart": _w(1.01, 0.1, "cold caches warm up again"),
        "route": _w(3, 0.25, "the harm is prefill"),
    },
    "prefix_cache_scattered": {
        "replicas": _w(1.01, 0.001, "it takes two replicas"),
        "hits": _w(6, 0.04, "hits must fall", driver=True),
        "switching": _w(20, 0.02, "turns must change replica", "placement"),
        "partial": _w(3, 0.3, "by chance some turns still hit", "placement"),
        "same_replica_hits": _w(6, 0.15, "hits depend on placement", "placement"),
        "lengths_flat": _w(1.5, 0.2, "longer prompts are another cause"),
        "route": _w(2, 0.3, "the harm is prefill"),
    },
    "load_burst": {
        "rate": _w(8, 0.03, "arrivals must rise", driver=True),
        "queue": _w(5, 0.06, "the excess is waiting", "queue"),
        "waiting": _w(3, 0.15, "the queue is seen", "queue"),
        "lengths_flat": _w(1.5, 0.4, "longer prompts are another cause"),
        "tenants_even": _w(2, 0.05, "one tenant alone is another cause"),
        "not_retries": _w(1.01, 0.03, "retries are a consequence"),
    },
    "tenant_dominance": {
        "share": _w(20, 0.02, "one share must rise", driver=True),
        "others_level": _w(3, 0.2, "the others did not send more"),
        "others_wait": _w(3, 0.2, "the others suffer"),
        "queue": _w(3, 0.2, "the harm is waiting"),
    },
    "head_of_line_blocking": {
        "giants": _w(8, 0.02, "there must be giants", driver=True),
        "behind": _w(12, 0.06, "those behind a giant wait, others do not"),
        "median_flat": _w(2, 0.2, "most prompts are as before"),
        "not_queue": _w(2, 0.5, "the engine's queue clock does not see it"),
        "jump": _w(1.5, 0.12, "giants jump, growth climbs"),
        "kv_free": _w(1.4, 0.2, "memory is not the limit"),
        "rate_flat": _w(1.4, 0.3, "a higher rate is another cause"),
    },
    "abandoned_requests": {
        "aborts": _w(25, 0.02, "departures must rise", "departures", driver=True),
        "hole": _w(20, 0.05, "answers without an end", "departures", driver=True),
        "unprovoked": _w(1.01, 0.03, "who leaves a queue that a burst made is its consequence", root=True),
    },
    "long_outputs": {
        "outputs": _w(15, 0.02, "answers must be longer", driver=True),
        "running": _w(2, 0.3, "slots stay taken"),
        "duration": _w(2, 0.2, "answers take longer"),
        "rate_flat": _w(1.3, 0.4, "a higher rate is another cause"),
        "tokens_steady": _w(1.5, 0.4, "the machine is not what slowed down"),
    },
    "sequence_limit": {
        "pinned": _w(6, 0.01, "a ceiling must be seen", driver=True),
        "kv_free": _w(2, 0.03, "memory is free"),
        "known_limit": _w(2, 0.7, "the setting agrees"),
        "lowered": _w(8, 0.4, "the ceiling fell", root=True),
        "demand_flat": _w(2, 0.15, "otherwise demand met an unchanged limit", root=True),
    },
    "engine_restart": {
        "restarted": _w(12, 0.01, "a new process must be seen", driver=True),
        "outage": _w(2, 0.7, "it did not answer meanwhile"),
        "errors": _w(2, 0.6, "requests in flight are lost"),
        "same_settings": _w(1.5, 0.15, "with other settings the change is the cause", root=True),
    },
    "config_change": {
        "event": _w(5, 0.9, "somebody marked a change", "change", driver=True),
        "setting": _w(14, 0.02, "a setting did change", "change", driver=True),
        "restarted": _w(2.5, 0.1, "engines read their settings at start"),
        "limit": _w(6, 0.6, "a limit is lower than before"),
        "demand_flat": _w(2.5, 0.12, "demand is another cause"),
        "contrast": _w(4, 0.15, "instances without the change are the control"),
    },
    "thermal_throttle": {
        "reason": _w(15, 0.03, "the GPU says so itself", driver=True),
        "clock": _w(6, 0.03, "the clock must fall", driver=True),
        "heat": _w(3, 0.15, "it must be hot"),
        "slower": _w(2, 0.4, "steps must take longer"),
    },
    "power_cap": {
        "reason": _w(12, 0.05, "the GPU says so itself", driver=True),
        "clock": _w(6, 0.03, "a cap without a lower clock is harmless"),
        "limit": _w(4, 0.9, "the limit itself was lowered"),
        "no_heat": _w(2, 0.3, "heat is another cause"),
        "slower": _w(2, 0.4, "steps must take longer"),
    },
    "noisy_neighbour": {
        "foreign": _w(4, 0.02, "there must be a neighbour", driver=True),
        "in_step": _w(15, 0.02, "it must keep time with the slow spells"),
    },
    "host_cpu_starvation": {
        "cpu": _w(3, 0.1, "CPU must be short", "cpu", driver=True),
        "run_queue": _w(2, 0.4, "tasks wait", "cpu", driver=True),
        "demand_flat": _w(3, 0.08, "more work explains slower steps"),
        "slower": _w(5, 0.1, "everything takes longer at equal work"),
        "front": _w(3, 0.5, "requests stall outside queue and prefill"),
        "gpu_not_busier": _w(1.2, 0.5, "the GPU waits"),
    },
    "host_memory_leak": {
        "resident": _w(6, 0.04, "memory must climb", driver=True),
        "memory_short": _w(4, 0.15, "and run out"),
        "harm": _w(10, 0.04, "with a consequence"),
    },
    "network_latency": {
        "gap": _w(30, 0.02, "the time must be lost outside the engine", "gap", driver=True),
        "engine_flat": _w(2.5, 0.3, "the engine is as fast as before"),
        "connect": _w(6, 0.5, "the gateway sees it", driver=True),
        "gateway_share": _w(12, 0.05, "the time must be lost before the engine", "gap"),
        "retransmits": _w(3, 0.9, "packets are lost"),
    },
    "telemetry_fault": {
        "frozen": _w(40, 0.03, "a living process moves its own CPU time", "frozen", driver=True),
        "lost": _w(30, 0.5, "series end or scrapes fail while the process goes on", "frozen", driver=True),
        "traffic": _w(10, 0.3, "clients were served meanwhile"),
    },
}
