"""Memory of a backend or engine grows until the host swaps or kills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diag.detectors.cues import PRESENT, Explained, Reach, excluded, rises, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Floats, Mitigation, Stance
from diag.quantities import change, quantity

CARD = Card(
    id="host_memory_leak",
    title="A process leaks memory until the host swaps or kills it",
    mechanism="Resident memory of a backend or engine climbs with uptime; once memory runs out, page faults, swapping or an out-of-memory kill make everything wait.",
    signs=("resident memory climbs, load does not", "then major faults, swap, memory pressure or OOM kills, in step with latency", "a restart resets it"),
    rules_out=("resident memory level", "memory grows without any consequence in faults, swap or latency"),
    look_alikes={"runtime_pauses": "stalls that grow with uptime without memory running out"},
    mitigations=(
        Mitigation("Restart the leaking process in a quiet minute, one replica at a time.", True),
        Mitigation("Set a memory limit, so that it is restarted before the whole host swaps.", False),
    ),
    next_check="Plot process_resident_memory_bytes of that process over days against its restarts.",
    chain=("process_resident_memory_bytes", "engine_resident_memory_bytes", "container_memory_working_set_bytes", "node_memory_available_ratio", "node_swap_used_bytes", "node_major_faults_per_second", "client_ttft_seconds", "ttft_seconds_mean"),
    leads_to=("network_latency",),
)  # fmt: skip

NEEDS = (
    ("process_resident_memory_bytes", "engine_resident_memory_bytes", "container_memory_working_set_bytes"),
)
_MEMORY = (
    "process_resident_memory_bytes",
    "engine_resident_memory_bytes",
    "container_memory_working_set_bytes",
)
_GROWN, _RISING = 1.1, 0.8
_HARM = {
    "node_major_faults_per_second": "page faults from disk",
    "node_swap_used_bytes": "swap in use",
    "node_oom_kills_per_second": "out-of-memory kills",
    "node_memory_pressure_ratio": "time some task waited for memory",
}


def examine(view: View) -> Iterator[Output]:
    """A climb, and a consequence of it: growth alone is nothing."""
    grown = [f for name in _MEMORY for f in view.each.get(name, ())]
    most = max(grown, key=lambda f: f.effect) if grown else None
    if most is not None:
        who = most.labels.get("instance") or most.labels.get("container") or "the process"
        told = rises("resident", most, f"resident memory of {who}")
        climbs = _climbs(view, most)
        if climbs and told.stance is Stance.AGAINST:
            # One that has climbed all along does not leave its usual wander: that is the climb itself.
            text = f"resident memory of {who} climbs all the while ({change(most.before, most.during, most.unit)})"
            told = replace(told, stance=Stance.FOR, degree=0.9, text=text, decisive=False)
        yield told
        if most.effect >= 1 or climbs:
            yield Reach({"processes": (who,)})
    left = view.each.get("node_memory_available_ratio", ())
    if left:
        least = min(left, key=lambda f: f.during)
        low = least.during < 0.10
        yield stated(
            "memory_short",
            least.signal,
            low,
            f"{quantity(least.during, 'ratio')} of memory available",
            before=least.before,
            during=least.during,
            unit="ratio",
            onset=least.onset,
            degree=1.0 if low else 0.0,
        )
    yield from _harm(view)


def _climbs(view: View, found: Finding) -> bool:
    """Whether it grew nearly without a step back before anybody felt it, and by a tenth or more in all; once
    memory is full it grows no more."""
    grown = found.before > 0 and found.during >= _GROWN * found.before
    for series in view.case.of(found.signal):
        if series.labels == found.labels and grown:
            return _rising(series.within(view.spans.baseline))
    return False


def _rising(values: Floats) -> bool:
    """Whether four fifths of the points stand above the point a third of the stretch before."""
    seen = values[np.isfinite(values)]
    apart = len(seen) // 3
    return apart >= 3 and float(np.mean(seen[apart:] > seen[:-apart])) >= _RISING


def _harm(view: View) -> Iterator[Output]:
    harm = [f for name in _HARM for f in view.each.get(name, ())]
    if not harm:
        return
    worst = max(harm, key=lambda f: f.effect)
    if worst.effect >= 1:
        yield stated(
            "harm",
            worst.signal,
            True,
            f"{_HARM[worst.signal]}: {quantity(worst.before, worst.unit)} → {quantity(worst.during, worst.unit)}",
            before=worst.before,
            during=worst.during,
            unit=worst.unit,
            onset=worst.onset,
        )
        gap = view.phases.share("gap")
        yield Explained(gap if gap is not None and gap > 0.3 else 0.5)
    else:
        sure = all(_quiet(f) for f in harm)
        yield stated(
            "harm",
            worst.signal,
            False,
            f"no consequence: {_HARM[worst.signal]} {quantity(worst.during, worst.unit)}, as before",
            before=worst.before,
            during=worst.during,
            unit=worst.unit,
            decisive=sure,
        )


def _quiet(finding: Finding) -> bool:
    return finding.present_ratio >= PRESENT and (excluded(finding, 1) or finding.peak == finding.before == 0)
