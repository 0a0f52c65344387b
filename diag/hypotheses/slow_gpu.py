"""One card is slower than its likes though its clock and flags are clean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from diag.detectors.cues import PRESENT, Explained, Reach, excluded, falls, flat, stated
from diag.detectors.findings import judge_values
from diag.detectors.gpus import gpu_name
from diag.detectors.peers import busy_only, same_card, slower_there, under_load
from diag.detectors.places import findings_here, series_here
from diag.detectors.service import demand_of, slow_steps, slower
from diag.detectors.view import View
from diag.detectors.whom import engines_on
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Floats, Mitigation, Series
from diag.quantities import quantity
from diag.signals.vocabulary import Scope, Signal, Worse

CARD = Card(
    id="slow_gpu",
    title="One GPU is slow though its clock and flags are clean",
    mechanism="A card in a bad state does less for each tick of its clock: it draws fewer watts than its likes at equal clock and load, and every step on it takes longer.",
    signs=("steps take longer on one card or replica only", "clock up, no throttle reason", "fewer watts at equal clock and load"),
    rules_out=("the clock fell or a reason is active", "watts at equal clock as before", "peers are slower too"),
    look_alikes={"thermal_throttle": "the clock falls, with heat", "power_cap": "the clock falls, with a power reason", "noisy_neighbour": "somebody else is on the card", "routing_hotspot": "it does more work than the others", "gpu_link_degraded": "its link is narrow"},
    mitigations=(
        Mitigation("Drain the slow card's replica and let the others carry the load.", True),
        Mitigation("Power-cycle the node (a reset is not always enough), then run the same short benchmark on each card.", False),
    ),
    next_check="The same fixed benchmark on each card, with nvidia-smi dmon -s pc beside it: seconds and watts at equal clock.",
    chain=("gpu_power_watts", "inter_token_seconds_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (
    ("gpu_sm_clock_hertz",),
    ("gpu_power_watts",),
    ("inter_token_seconds_mean", "client_duration_seconds"),
)

# Watts at equal clock and load repeat within a few per cent on one card; a bad state showed a third less.
_WATTS = Signal(
    "gpu_power_watts", "watts", Scope.GPU, Worse.NEITHER, 0.07, True, "board power at equal clock", ""
)
_IDLE_SHARE = 0.15  # of full power, drawn while nothing runs: 75 to 120 W of 700
_REASONS = {
    "gpu_thermal_throttle_ratio": "a thermal reason",
    "gpu_power_throttle_ratio": "a power reason",
    "gpu_power_brake_ratio": "a power brake",
}


def examine(view: View) -> Iterator[Output]:
    """Slower here and not there, at equal work, with clean clock and flags, and fewer watts for it."""
    view = replace(view, affected=slow_steps(view))
    speed = slower(view)
    if speed is None:
        return
    ratio, seen = speed
    degree = max(0.0, min(1.0, 0.5 + (ratio - 1.15) / 0.3))
    text = f"time between tokens ×{ratio:.2f} ({seen})"
    flat_steps = view.fleet.get("inter_token_seconds_mean")
    sure = flat_steps is not None and excluded(flat_steps, 1) and ratio < 1.1
    yield stated("slower", "inter_token_seconds_mean", degree >= 0.5, text, degree=degree, decisive=sure)
    cards = _per_card(view)
    watts = min(cards, key=lambda f: f.effect, default=None)
    if watts is not None and _alike(cards):
        text = f"all {len(cards)} cards draw less, about alike: they wait for something that they share"
        yield stated("watts", watts.signal, False, text, degree=0.3)
    elif watts is not None:
        _, here = findings_here(view, "gpu_power_watts")
        yield here.judge(falls("watts", watts, f"power of {gpu_name(watts.labels)} at equal clock and use"))
        if watts.effect <= -1 and degree >= 0.5:
            yield Explained(0.7)
            where = gpu_name(watts.labels)
            yield Reach({"gpus": (where,), "instances": engines_on(view, (watts.labels,))})
    yield from _clean(view)
    there = slower_there(view)
    if there is not None:
        apart = ratio / max(there[0], 1e-6)
        text = f"time between tokens ×{ratio:.2f} here, ×{there[0]:.2f} at the engines nobody complains about"
        yield stated(
            "apart", "inter_token_seconds_mean", apart >= 1.15, text, degree=1.0 if apart >= 1.15 else 0.1
        )
    demand = demand_of(view)
    if demand.known >= 2:
        text = f"demand moved: {', '.join(demand.moved)}" if demand.moved else "equal work"
        yield stated("demand_flat", "arrivals_per_second", not demand.moved, text, degree=1 - demand.degree)


def _alike(cards: Sequence[Finding]) -> bool:
    """Whether all cards lost watts, each at least half as much as the one that lost most: that is no card."""
    lost = [1.0 - f.during / f.before for f in cards if f.before > 0]
    return len(lost) >= 2 and max(lost) > 0.07 and min(lost) >= 0.5 * max(lost)


def _per_card(view: View) -> tuple[Finding, ...]:
    """Watts at equal clock and equal use, busy moments only, of each card: one that waits for its host between
    steps draws less, and is not slow."""
    watts, _ = series_here(view, "gpu_power_watts")
    clocks = {gpu_name(one.labels): one for one in view.case.of("gpu_sm_clock_hertz")}
    found = [_per_clock(view, one, clocks.get(gpu_name(one.labels))) for one in watts]
    return tuple(one for one in found if one is not None)


def _per_clock(view: View, watts: Series, clock: Series | None) -> Finding | None:
    if clock is None or len(clock.values) != len(watts.values):
        return None
    busy, use = busy_only(view, watts), same_card(view.case.of("gpu_utilization_ratio"), watts.labels)
    usual = np.nanmedian(clock.values) if np.isfinite(clock.values).any() else np.nan
    worked = use.values if use is not None and len(use.values) == len(watts.values) else 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        level: Floats = busy.values * usual / clock.values / (_IDLE_SHARE + (1 - _IDLE_SHARE) * worked)
    one = Series(watts.signal, watts.labels, watts.times, level, watts.producer)
    return judge_values(
        _WATTS, one.within(view.spans.baseline), one.within(view.spans.settled),
        labels=watts.labels, min_block=view.spans.overlap_points,
    )  # fmt: skip


def _clean(view: View) -> Iterator[Output]:
    clock = under_load(view, "gpu_sm_clock_hertz", -1)
    if clock is not None:
        _, here = findings_here(view, "gpu_sm_clock_hertz")
        yield here.judge(
            flat("clock_clean", clock, f"SM clock of {gpu_name(clock.labels)} under load", sign=-1)
        )
    held = [f for name in _REASONS for f in findings_here(view, name)[0]]
    if held:
        most = max(held, key=lambda f: f.effect)
        text = f"{_REASONS[most.signal]} is active {quantity(most.during, 'ratio')} of the time (before: {quantity(most.before, 'ratio')})"
        yield stated(
            "flags_clean", most.signal, most.effect < 1, text,
            before=most.before, during=most.during, unit="ratio",
            degree=1.0 if most.effect < 1 and most.present_ratio >= PRESENT else 0.0 if most.effect >= 1 else 0.6,
        )  # fmt: skip
    use = under_load(view, "gpu_utilization_ratio", -1)
    if use is not None:
        yield flat("works_on", use, f"use of {gpu_name(use.labels)}", sign=-1)
    others = [
        f for n in ("gpu_foreign_sm_ratio", "gpu_foreign_memory_bytes") for f in findings_here(view, n)[0]
    ]
    if others:
        most = max(others, key=lambda f: f.effect)
        text = f"{'a' if most.effect >= 1 else 'no'} foreign process came to {gpu_name(most.labels)}"
        yield stated(
            "nobody_else", most.signal, most.effect < 1, text, degree=1.0 if most.effect < 1 else 0.1
        )
