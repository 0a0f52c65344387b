"""A power limit, cap or brake lowers the GPU's clock."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import Reach, falls, flat, rises, stated
from diag.detectors.gpus import gpu_name, same_gpu, worst
from diag.detectors.places import findings_here
from diag.detectors.service import slower
from diag.detectors.view import View
from diag.detectors.whom import engines_on, places_marked
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation

CARD = Card(
    id="power_cap",
    title="A power limit or brake holds the GPU's clock down",
    mechanism="The board's power limit, a chassis cap below it or an external power brake lowers the clock; every step takes longer.",
    signs=("a power reason is active beyond its usual share, or the brake at all", "SM clock down, power flat at some level", "temperature normal or falling"),
    rules_out=("the clock held", "power reasons no more active than before"),
    look_alikes={"thermal_throttle": "temperature is up and a thermal reason active"},
    mitigations=(
        Mitigation("Drain the capped GPU's replica.", True),
        Mitigation("Compare the enforced limit with the default (nvidia-smi -q -d POWER) and look for a rack power event or a lost supply.", True),
    ),
    next_check="nvidia-smi -q -d POWER,PERFORMANCE on the node: enforced limit, clocks-event reasons, power brake.",
    chain=("gpu_power_limit_watts", "gpu_power_brake_ratio", "gpu_power_throttle_ratio", "gpu_sm_clock_hertz", "inter_token_seconds_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (("gpu_sm_clock_hertz", "gpu_power_throttle_ratio", "gpu_power_brake_ratio"),)


def examine(view: View) -> Iterator[Output]:
    """Power reason or brake, clock, temperature; a brief cap under load is normal, so the clock decides."""
    brake, cap = worst(view, "gpu_power_brake_ratio", 1), worst(view, "gpu_power_throttle_ratio", 1)
    reasons = [f for f in (brake, cap) if f is not None]
    lead = max(reasons, key=lambda f: f.effect) if reasons else None
    clock = worst(view, "gpu_sm_clock_hertz", -1)
    if lead is None and clock is None:
        return
    anchor = lead if lead is not None and lead.effect >= 1 else clock or lead
    assert anchor is not None
    _, here = findings_here(view, "gpu_sm_clock_hertz")
    where = gpu_name(anchor.labels)
    if lead is not None:
        what = "power brake" if lead is brake else "power cap"
        yield here.judge(rises("reason", lead, f"time under a {what} on {gpu_name(lead.labels)}"))
    if clock is not None:
        yield here.judge(
            falls("clock", same_gpu(view, "gpu_sm_clock_hertz", anchor) or clock, f"SM clock of {where}")
        )
    limit = same_gpu(view, "gpu_power_limit_watts", anchor)
    if limit is not None and limit.effect <= -1:
        yield here.judge(falls("limit", limit, f"enforced power limit of {where}"))
    heat = same_gpu(view, "gpu_temperature_celsius", anchor)
    if heat is not None:
        yield here.judge(flat("no_heat", heat, f"temperature of {where}", sign=1))
    speed = slower(view)
    if speed is not None:
        ratio, seen = speed
        yield stated(
            "slower", "inter_token_seconds_mean", ratio >= 1.2, f"time between tokens ×{ratio:.2f} ({seen})"
        )
    if lead is not None and lead.effect >= 1:
        held = places_marked(view, (lead.signal,), 1)
        yield Reach({"gpus": tuple(gpu_name(one) for one in held), "instances": engines_on(view, held)})
