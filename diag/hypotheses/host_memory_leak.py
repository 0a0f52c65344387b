"""Memory of a backend or engine grows until the host swaps or kills."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import PRESENT, Explained, Reach, excluded, rises, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Mitigation
from diag.quantities import quantity

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
        yield rises("resident", most, f"resident memory of {who}")
        if most.effect >= 1:
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
