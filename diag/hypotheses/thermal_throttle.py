"""Heat lowers the GPU's clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diag.detectors.cues import PRESENT, Reach, falls, rises, stated
from diag.detectors.gpus import gpu_name, same_gpu, worst
from diag.detectors.places import findings_here
from diag.detectors.service import slower
from diag.detectors.view import View
from diag.detectors.whom import engines_on, places_marked
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation

CARD = Card(
    id="thermal_throttle",
    title="The GPU throttles because it is too hot",
    mechanism="Temperature reaches a slowdown threshold, the GPU lowers its clock, and every step takes longer.",
    signs=("a thermal clock-event reason is active", "SM clock down while temperature is up", "time between tokens and prefill follow the clock"),
    rules_out=("the clock held", "thermal reasons absent with the series alive"),
    look_alikes={"power_cap": "power reason, normal temperature", "slow_gpu": "slow with clean clocks"},
    mitigations=(
        Mitigation("Drain the hot GPU's replica and let the others carry the load.", True),
        Mitigation("Check inlet temperature, fans and dust; a lower power limit (nvidia-smi -pl) keeps it below the threshold meanwhile.", False),
    ),
    next_check="nvidia-smi -q -d TEMPERATURE,PERFORMANCE,CLOCK on the node, during the slow spell.",
    chain=("gpu_temperature_celsius", "gpu_thermal_throttle_ratio", "gpu_sm_clock_hertz", "inter_token_seconds_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (("gpu_sm_clock_hertz", "gpu_thermal_throttle_ratio"),)


def examine(view: View) -> Iterator[Output]:
    """Thermal reason, clock, temperature on the worst GPU; and a slower service."""
    clock, reason = worst(view, "gpu_sm_clock_hertz", -1), worst(view, "gpu_thermal_throttle_ratio", 1)
    lead = reason if reason is not None and reason.effect >= 1 else clock or reason
    if lead is None:
        return
    _, here = findings_here(view, "gpu_sm_clock_hertz")
    where = gpu_name(lead.labels)
    whole = not _reasons_ended(view)
    if reason is not None:
        yield here.judge(
            rises("reason", reason, f"time under a thermal clock limit on {gpu_name(reason.labels)}")
        )
    if clock is not None:
        told = here.judge(
            falls("clock", same_gpu(view, "gpu_sm_clock_hertz", lead) or clock, f"SM clock of {where}")
        )
        yield replace(told, decisive=told.decisive and whole)
    heat = same_gpu(view, "gpu_temperature_celsius", lead)
    if heat is not None:
        told = here.judge(rises("heat", heat, f"temperature of {where}"))
        yield replace(told, decisive=told.decisive and whole)
    speed = slower(view)
    if speed is not None:
        ratio, seen = speed
        yield stated(
            "slower", "inter_token_seconds_mean", ratio >= 1.2, f"time between tokens ×{ratio:.2f} ({seen})"
        )
    if reason is not None and reason.effect >= 1:
        hot = places_marked(view, (reason.signal,), 1)
        yield Reach({"gpus": tuple(gpu_name(one) for one in hot), "instances": engines_on(view, hot)})


def _reasons_ended(view: View) -> bool:
    """Whether the reasons were told before and are no more: an exporter that lost them is not to be trusted with
    an all-clear."""
    told = view.case.of("gpu_thermal_throttle_ratio")
    before = any(np.isfinite(s.within(view.spans.baseline)).any() for s in told)
    return before and all(float(np.isfinite(s.within(view.spans.incident)).mean()) < PRESENT for s in told)
