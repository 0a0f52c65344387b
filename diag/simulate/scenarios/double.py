"""Two independent causes at once, both strong enough to be felt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from diag.simulate.plan import Plan, Truth
from diag.simulate.scenarios import (
    client_limit,
    context_growth,
    gpu_hardware_fault,
    host_cpu_starvation,
    load_burst,
    long_outputs,
    network_latency,
    noisy_neighbour,
    power_cap,
    prefix_cache_broken,
    proxy_limit,
    runtime_pauses,
    slow_gpu,
    spec_decode_collapse,
    thermal_throttle,
)
from diag.simulate.scenarios.draw import Draw, Scenario

__all__ = ["PAIRS", "SCENARIO"]

_First = Callable[[Draw], Plan]
_Then = Callable[[Plan, Draw], Plan]

PAIRS: tuple[tuple[_First, _Then], ...] = (
    (thermal_throttle.SCENARIO.plan, network_latency.afflict),
    (power_cap.SCENARIO.plan, network_latency.afflict),
    (noisy_neighbour.SCENARIO.plan, network_latency.afflict),
    (slow_gpu.SCENARIO.plan, network_latency.afflict),
    (runtime_pauses.SCENARIO.plan, network_latency.afflict),
    (gpu_hardware_fault.SCENARIO.plan, network_latency.afflict),
    (host_cpu_starvation.SCENARIO.plan, power_cap.afflict),
    (thermal_throttle.SCENARIO.plan, host_cpu_starvation.afflict),
    (noisy_neighbour.SCENARIO.plan, client_limit.afflict),
    (slow_gpu.SCENARIO.plan, proxy_limit.afflict),
    (context_growth.SCENARIO.plan, network_latency.afflict),
    (long_outputs.SCENARIO.plan, network_latency.afflict),
    (load_burst.SCENARIO.plan, network_latency.afflict),
    (load_burst.SCENARIO.plan, thermal_throttle.afflict),
    (prefix_cache_broken.SCENARIO.plan, noisy_neighbour.afflict),
    (spec_decode_collapse.SCENARIO.plan, client_limit.afflict),
)
"""Causes that touch different parts of a plan, so that neither undoes the other."""

_LEAST_SEVERITY = 0.55


def _plan(draw: Draw) -> Plan:
    first, then = draw.pick(PAIRS)
    left = draw.seconds - draw.onset
    later = draw.onset + (0.0 if draw.chance(0.5) else round(draw.between(0.05, 0.35) * left))
    onsets = (draw.onset, later) if draw.chance(0.5) else (later, draw.onset)
    one, other = (replace(draw, severity=draw.between(_LEAST_SEVERITY, 1.0), onset=onset) for onset in onsets)
    plan = first(one)
    told_first = plan.truth
    plan = replace(then(plan, other), name=f"double-{draw.seed}")
    return replace(plan, truth=_both(told_first, plan.truth))


def _both(first: Truth, second: Truth) -> Truth:
    """The more severe one leads, and the other one is right as well; the first onset is the incident's."""
    main, side = (first, second) if first.severity >= second.severity else (second, first)
    scope: dict[str, tuple[str, ...]] = dict(main.scope)
    for key, names in side.scope:
        scope[key] = tuple(dict.fromkeys((*scope.get(key, ()), *names)))
    return Truth(
        causes=tuple(dict.fromkeys((*main.causes[:1], *side.causes[:1], *main.causes, *side.causes))),
        leading=main.leading,
        accept=tuple(dict.fromkeys((*side.causes[:1], *main.accept, *side.accept))),
        scope=tuple(scope.items()),
        onset=min(onset for onset in (first.onset, second.onset) if onset is not None),
        severity=side.severity,
    )


SCENARIO = Scenario("double", "", "double", "two independent causes, together or one after the other", _plan)
