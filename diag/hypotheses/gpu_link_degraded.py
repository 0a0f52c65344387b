"""A card's PCIe or NVLink carries less than it should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from diag.detectors.cues import Reach, excluded, falls, flat, rises, stated
from diag.detectors.gpus import gpu_name, worst
from diag.detectors.peers import slower_there, under_load
from diag.detectors.places import findings_here
from diag.detectors.service import demand_of, slow_steps, slower
from diag.detectors.view import View
from diag.detectors.whom import engines_on, places_marked
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Mitigation

CARD = Card(
    id="gpu_link_degraded",
    title="A GPU's link runs below its width or full of errors",
    mechanism="PCIe trains down to fewer lanes or a lower generation, or NVLink repeats packets: collectives, weights and KV on their way take longer, and one slow card slows its whole group.",
    signs=("lanes or generation below the maximum under load", "replays or NVLink errors climb", "steps take longer, most of all with tensor parallelism", "clocks are clean"),
    rules_out=("full width and generation under load, no errors",),
    look_alikes={"slow_gpu": "slow with a full link", "thermal_throttle": "the clock falls", "gpu_hardware_fault": "the engine dies of it"},
    mitigations=(
        Mitigation("Drain the replica that uses the card and let the others carry the load.", True),
        Mitigation("Reseat card, riser or bridge, reset the GPU; move the replica to a node with full links.", False),
    ),
    next_check="nvidia-smi -q -d PCIE and nvidia-smi nvlink -e on the node while it is busy.",
    chain=("gpu_link_errors_per_second", "gpu_link_width_ratio", "gpu_link_generation_ratio", "gpu_nvlink_active_ratio", "inter_token_seconds_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (
    (
        "gpu_link_width_ratio",
        "gpu_link_generation_ratio",
        "gpu_link_errors_per_second",
        "gpu_nvlink_active_ratio",
    ),
)
_WIDTHS = {
    "gpu_link_width_ratio": "PCIe lanes in use",
    "gpu_link_generation_ratio": "PCIe generation under load",
    "gpu_nvlink_active_ratio": "NVLinks that are up",
}


def examine(view: View) -> Iterator[Output]:
    """Lanes and generation while the card works, errors, and a slower service with clean clocks.

    Either is enough: a link can train down without an error, and repeat packets at full width."""
    view = replace(view, affected=slow_steps(view))
    narrow = _narrowest(view)
    errors = worst(view, "gpu_link_errors_per_second", 1)
    lead = _lead(narrow, errors)
    if lead is None:
        return
    _, here = findings_here(view, lead.signal)
    lost, dirty = narrow is not None and narrow.effect <= -1, errors is not None and errors.effect >= 1
    if narrow is not None and (lost or not dirty):
        yield here.judge(falls("narrow", narrow, f"{_WIDTHS[narrow.signal]} on {gpu_name(narrow.labels)}"))
    if errors is not None and (dirty or not lost):
        yield here.judge(rises("errors", errors, f"link errors of {gpu_name(errors.labels)}"))
    yield from _effect(view)
    clock = under_load(view, "gpu_sm_clock_hertz", -1)
    if clock is not None:
        yield flat("clock_clean", clock, f"SM clock of {gpu_name(clock.labels)}", sign=-1)
    if lost or dirty:
        bad = places_marked(view, (lead.signal,), 1 if lead is errors else -1) or (lead.labels,)
        yield Reach({"gpus": tuple(gpu_name(one) for one in bad), "instances": engines_on(view, bad)})


def _narrowest(view: View) -> Finding | None:
    found = [under_load(view, name, -1) for name in _WIDTHS]
    known = [one for one in found if one is not None]
    return min(known, key=lambda f: f.effect) if known else None


def _lead(narrow: Finding | None, errors: Finding | None) -> Finding | None:
    if narrow is None or errors is None:
        return narrow or errors
    return narrow if -narrow.effect >= min(errors.effect, 1.0) else errors


def _effect(view: View) -> Iterator[Output]:
    """A narrow link that nobody feels is no cause: single-card engines hardly use it."""
    demand = demand_of(view)
    if demand.known >= 2:
        text = f"demand moved: {', '.join(demand.moved)}" if demand.moved else "equal work"
        yield stated("demand_flat", "arrivals_per_second", not demand.moved, text, degree=1 - demand.degree)
    speed = slower(view)
    if speed is None:
        return
    ratio, seen = speed
    degree = max(0.0, min(1.0, 0.5 + (ratio - 1.12) / 0.3))
    text = f"time between tokens ×{ratio:.2f} ({seen})"
    yield stated(
        "slower", "inter_token_seconds_mean", degree >= 0.5, text, degree=degree, decisive=_sure(view, ratio)
    )
    there = slower_there(view)
    if there is not None:
        apart = ratio / max(there[0], 1e-6)
        text = f"time between tokens ×{ratio:.2f} here, ×{there[0]:.2f} at the engines nobody complains about"
        yield stated(
            "apart", "inter_token_seconds_mean", apart >= 1.1, text, degree=1.0 if apart >= 1.1 else 0.2
        )


def _sure(view: View, ratio: float) -> bool:
    found = view.fleet.get("inter_token_seconds_mean")
    return ratio < 1.05 and found is not None and excluded(found, 1)
