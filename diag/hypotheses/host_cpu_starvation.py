"""API server, tokeniser or scheduler are starved of CPU.

Engines busy-wait, so a busy core alone means nothing: what counts is a slower service at equal work
together with a fuller host, above all time lost between the engine's own phases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from diag.detectors.cues import Explained, Reach, flat, rises, stated
from diag.detectors.places import Here, findings_here
from diag.detectors.service import demand_of, slower
from diag.detectors.view import View
from diag.detectors.whom import engines_on, places_marked
from diag.hypotheses.registry import Output
from diag.model import Card, Evidence, Finding, Mitigation, Stance
from diag.quantities import quantity

CARD = Card(
    id="host_cpu_starvation",
    title="The engine's host processes are starved of CPU",
    mechanism="API server, tokeniser or scheduler compete with something else for CPU (or hit a quota): steps start late, requests stall before and between them.",
    signs=("everything slower by about one factor at equal work, with stalls", "first-token time that is neither queue nor prefill", "CPU busy, run queue long, throttled periods or CPU pressure up"),
    rules_out=("CPU free", "demand explains the slower steps"),
    look_alikes={"noisy_neighbour": "the neighbour is on the GPU", "head_of_line_blocking": "stalls coincide with giant prompts", "grammar_stall": "only structured-output requests"},
    mitigations=(
        Mitigation("Stop or move the process that takes the CPU (top, pidstat on the node).", True),
        Mitigation("Raise the container's CPU quota or pin the engine to cores of its own.", True),
    ),
    next_check="pidstat -u 2 10 on the node; container_cpu_cfs_throttled_periods_total of the engine's pod.",
    chain=("node_cpu_user_ratio", "node_load1", "node_cpu_pressure_ratio", "container_cpu_throttled_ratio", "inter_token_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (
    (
        "node_cpu_busy_ratio",
        "node_cpu_user_ratio",
        "node_cpu_pressure_ratio",
        "container_cpu_throttled_ratio",
        "node_load1",
    ),
)
_CPU = (
    "container_cpu_throttled_ratio",
    "node_cpu_pressure_ratio",
    "node_cpu_user_ratio",
    "node_cpu_busy_ratio",
    "node_cpu_steal_ratio",
    "node_load1",
)
_SHARES = ("node_cpu_user_ratio", "node_cpu_busy_ratio")
_FULL, _ROOM = 0.9, 0.75  # of all CPUs
_AS_FAST = 1.05
_WORDS = {
    "container_cpu_throttled_ratio": "share of throttled CPU periods",
    "node_cpu_pressure_ratio": "share of time some task waited for a CPU",
    "node_cpu_user_ratio": "CPU time in user mode",
    "node_cpu_busy_ratio": "CPU time in use",
    "node_cpu_steal_ratio": "CPU time taken by the hypervisor",
    "node_load1": "load average (one minute)",
}


def examine(view: View) -> Iterator[Output]:
    """The fullest CPU sign, a slower service at equal work, and time lost outside the phases."""
    cpu, here = _fullest(view)
    if cpu is not None:
        told = here.judge(_short(cpu))
        yield replace(told, decisive=told.decisive and _tells(view))
        if cpu.effect >= 1:
            short = places_marked(view, (cpu.signal,), 1)
            nodes = tuple(dict.fromkeys(one.get("node", "") for one in short if one.get("node")))
            yield Reach({"nodes": nodes, "instances": engines_on(view, short)})
    loads, _ = findings_here(view, "node_load1")
    load = max(loads, key=lambda f: f.effect, default=None)
    if load is not None and load is not cpu:
        # One process at the end of its one core is no queue.
        yield replace(here.judge(rises("run_queue", load, _WORDS["node_load1"])), decisive=False)
    demand = demand_of(view)
    if demand.known >= 2:
        yield stated(
            "demand_flat",
            "arrivals_per_second",
            not demand.moved,
            f"demand moved: {', '.join(demand.moved)}"
            if demand.moved
            else "equal work: same rate, same lengths, same cache hits",
        )
    speed = slower(view)
    if speed is not None:
        ratio, seen = speed
        degree = 1.0 if ratio >= 1.3 else max(0.0, (ratio - 1.0) / 0.6)
        yield stated(
            "slower",
            "inter_token_seconds_mean",
            ratio >= 1.2,
            f"time between tokens ×{ratio:.2f} ({seen})",
            degree=degree,
        )
    front = view.phases.share("front")
    if front is not None:
        yield stated(
            "front",
            "ttft_seconds_mean",
            front >= 0.3,
            f"{quantity(front, 'ratio')} of the extra wait is neither queue nor prefill: requests stall in the server's own process",
            degree=front,
        )
        if not demand.moved and cpu is not None and cpu.effect >= 1:
            yield Explained(max(front, 0.5))
    usage = view.fleet.get("gpu_utilization_ratio")
    if usage is not None:
        yield flat("gpu_not_busier", usage, "GPU utilisation", sign=1)


def _short(cpu: Finding) -> Evidence:
    """A CPU that had room and is full now is short, however much it wandered with the work before."""
    told = rises("cpu", cpu, _WORDS[cpu.signal])
    full = cpu.signal in _SHARES and cpu.during >= _FULL and cpu.before <= _ROOM
    return replace(told, stance=Stance.FOR, degree=max(told.degree, 0.7), decisive=False) if full else told


def _tells(view: View) -> bool:
    """Whether a free CPU excludes it: only where steps are as fast as before, too. One process at the end of its
    one core makes neither pressure nor a busy host."""
    speed = slower(view)
    return speed is not None and speed[0] < _AS_FAST


def _fullest(view: View) -> tuple[Finding | None, Here]:
    """The sign of a short CPU that moved most on the slow engines' hosts; the load only for want of better."""
    seen = [(f, here) for name in _CPU for found, here in [findings_here(view, name)] for f in found]
    better = [pair for pair in seen if pair[0].signal != "node_load1"] or seen
    if not better:
        return None, Here(False)
    return max(better, key=lambda pair: pair[0].effect)
