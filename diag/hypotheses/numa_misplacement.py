"""The serving process runs far from its GPU's memory and links."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import Explained, Reach, excluded, falls, flat, rises, stated
from diag.detectors.peers import elsewhere
from diag.detectors.places import findings_here
from diag.detectors.service import demand_of, slower
from diag.detectors.view import View
from diag.detectors.whom import engines_on, places_marked
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="numa_misplacement",
    title="The engine runs on the wrong NUMA node, far from its GPU",
    mechanism="After a start the process lands on CPUs and memory of another socket than its GPU's: launches and copies cross the link between the sockets, mostly a few per cent, up to a quarter.",
    signs=("memory accesses across nodes step up after a (re)start", "steps take longer at equal work", "other hosts are as before"),
    rules_out=("accesses stay near", "steps as fast as before: far memory that nobody feels"),
    look_alikes={"host_cpu_starvation": "CPUs are short", "engine_restart": "passes when caches are warm", "config_change": "a setting changed with the restart"},
    mitigations=(
        Mitigation("Restart the replica bound to its GPU's node (numactl --cpunodebind --membind), others first.", True),
        Mitigation("Use the topology manager (single-numa-node) or the engine's own NUMA binding instead of static pinning.", False),
    ),
    next_check="numastat -p of the engine's workers against nvidia-smi topo -m (column NUMA affinity).",
    chain=("node_numa_remote_ratio", "gpu_numa_match_ratio", "inter_token_seconds_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (("node_numa_remote_ratio", "gpu_numa_match_ratio"),)

_START_SECONDS = 300.0  # counters and look-back take a while to show where a new process landed


def examine(view: View) -> Iterator[Output]:
    """Far accesses, since a start, with an effect: the anomaly alone is common and harmless."""
    far = _furthest(view)
    if far is None:
        return
    _, here = findings_here(view, far.signal)
    if far.signal == "node_numa_remote_ratio":
        yield here.judge(rises("far", far, f"memory taken on another NUMA node on {_name(far)}"))
    else:
        yield here.judge(falls("far", far, f"GPU and process on one NUMA node on {_name(far)}"))
    moved = far.effect >= 1 if far.signal == "node_numa_remote_ratio" else far.effect <= -1
    speed = slower(view)
    demand = demand_of(view)
    if demand.known >= 2:
        text = f"demand moved: {', '.join(demand.moved)}" if demand.moved else "equal work"
        yield stated("demand_flat", "arrivals_per_second", not demand.moved, text, degree=1 - demand.degree)
    if speed is not None:
        ratio, seen = speed
        degree = max(0.0, min(1.0, 0.5 + (ratio - 1.10) / 0.2))
        steps = view.fleet.get("inter_token_seconds_mean")
        sure = steps is not None and excluded(steps, 1) and ratio < 1.05
        text = f"time between tokens ×{ratio:.2f} ({seen})"
        yield stated("slower", "inter_token_seconds_mean", degree >= 0.5, text, degree=degree, decisive=sure)
        if moved and degree >= 0.5 and not demand.moved:
            yield Explained(0.7)
    if moved:
        yield from _since_start(view, far)
        others = elsewhere(view, far.signal)
        if others:
            most = max(others, key=lambda f: abs(f.effect))
            yield flat("elsewhere_near", most, f"the same on {_name(most)}")
        marked = places_marked(view, (far.signal,), 1 if far.effect > 0 else -1)
        names = dict.fromkeys(one.get("node") or _name(far) for one in marked)
        yield Reach({"nodes": tuple(names), "instances": engines_on(view, marked)})


def _furthest(view: View) -> Finding | None:
    remote, _ = findings_here(view, "node_numa_remote_ratio")
    match, _ = findings_here(view, "gpu_numa_match_ratio")
    far = max(remote, key=lambda f: f.effect, default=None)
    torn = min(match, key=lambda f: f.effect, default=None)
    if far is None or (torn is not None and -torn.effect > far.effect):
        return torn or far
    return far


def _name(finding: Finding) -> str:
    return finding.labels.get("node") or finding.labels.get("instance") or "the host"


def _since_start(view: View, far: Finding) -> Iterator[Output]:
    starts = [c for c in view.changes if c.kind == "restart" and view.concerns(c.target)]
    if not starts:
        known = bool(view.case.of("engine_start_time_seconds"))
        text = "no engine started anew" if known else "whether an engine started anew is not known"
        yield stated("since_start", "engine_start_time_seconds", False, text, degree=0.0 if known else 0.5)
        return
    when = far.onset if far.onset is not None else view.onset
    near = min(starts, key=lambda c: abs(c.time - when))
    timely = abs(near.time - when) <= _START_SECONDS
    text = f"{near.text}, {quantity(abs(near.time - when), 'seconds')} {'before' if near.time <= when else 'after'} it"
    yield stated("since_start", "engine_start_time_seconds", timely, text, degree=1.0 if timely else 0.1)
