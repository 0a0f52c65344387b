"""Garbage collection or the like halts the process, longer and longer the older it gets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.beat import LIKELY, WORTH
from diag.detectors.cues import Explained, Reach, degree_of, stated
from diag.detectors.idling import IDLE, Idling, idling_of, late_host
from diag.detectors.pauses import Pauses, pauses_of
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="runtime_pauses",
    title="The engine's process halts again and again, longer with its age",
    mechanism="A collection of all live objects (or a similar pause) stops the process at intervals; what it has to walk through grows with uptime, and so do the stalls, until a restart.",
    signs=("moments in which nothing comes out though work is under way", "at even intervals", "each longer than the one before", "gone after a restart", "a card that waits, more and more, though requests are there"),
    rules_out=("answers come without such silences",),
    look_alikes={"engine_stall": "one halt that does not end", "host_cpu_starvation": "everything is slower, not halted", "head_of_line_blocking": "the silences follow giant prompts", "grammar_stall": "they follow structured requests", "network_latency": "only the clients see them"},
    mitigations=(
        Mitigation("Restart the oldest replica in a quiet minute, one at a time: the pauses start small again.", True),
        Mitigation("Freeze the heap after start-up (gc.freeze) or collect outside the serving path; fix what leaks objects.", False),
    ),
    next_check="Log collections (VLLM_GC_DEBUG=1, or gc.callbacks) and lay their times beside the silences.",
    chain=("engine_resident_memory_bytes", "inter_token_seconds_p99", "ttft_seconds_p95", "e2e_seconds_mean"),
)  # fmt: skip

NEEDS = (("client_duration_seconds", "client_ttft_seconds", "gpu_utilization_ratio"),)

_FEW = 4
_ODDS = 0.02
_TOLD_SECONDS = 3.0
_CARD_GROWTH = 1.3  # irregular halts that do not grow vary as much by chance
_STRUCTURED = 0.05  # of requests


def examine(view: View) -> Iterator[Output]:
    """Silences, their beat, their growth, and whether the engine halts or only the way to it; without records
    that could tell them, what the card does."""
    pauses, idle = pauses_of(view), idling_of(view)
    if pauses is None or not _halts(pauses):
        if idle is not None and (pauses is None or pauses.smallest_seconds > _TOLD_SECONDS):
            yield from _card_alone(view, idle)
            return
        if pauses is None:
            return
        text = f"{pauses.during} silences of more than {quantity(pauses.smallest_seconds, 'seconds')} while work was under way, and no beat"
        decisive = pauses.smallest_seconds <= 2.0 and pauses.during == 0
        # Shorter halts than can be told from chance may be there all the same.
        degree = 0.0 if pauses.smallest_seconds <= _TOLD_SECONDS else 0.25
        yield stated("silences", "inter_token_seconds_p99", False, text, degree=degree, decisive=decisive)
        return
    yield _silences(view, pauses)
    yield from _beat(pauses)
    if _proven(pauses):
        yield Explained(0.6)
    elif pauses.during >= 3:
        text = f"answers that met one hold {quantity(pauses.share, 'ratio')} of the extra time"
        yield stated("harm", "e2e_seconds_mean", pauses.share >= 0.4, text, degree=pauses.share)
        yield Explained(min(1.0, pauses.share))
    provoked = pauses.provoked >= 0.5
    text = "the work arrives in the same beat" if provoked else "the work does not arrive in that beat"
    degree = 1.0 - pauses.provoked
    yield stated("unprovoked", "request_computed_tokens", not provoked, text, degree=degree)
    yield from _engine(view, pauses.instance)
    if idle is not None:
        # Halts of a twentieth of the time drown in the blur of a scrape.
        blind = pauses.lost_during < 2 * IDLE
        degree = max(idle.degree, 0.4) if blind else idle.degree
        yield stated(
            "card_waits", "gpu_utilization_ratio", idle.degree >= 0.5, idle.text, degree=degree, unit="ratio"
        )
    yield Reach({"instances": (pauses.instance,) if pauses.instance else ()})


def _card_alone(view: View, idle: Idling) -> Iterator[Output]:
    """A card that waits, more and more, for an engine whose own clocks see it, with nobody else to keep it so."""
    waits = idle.degree >= 0.5
    yield stated(
        "silences", "gpu_utilization_ratio", waits, idle.text, unit="ratio",
        before=idle.before, during=idle.during, degree=0.8 if waits else 0.1,
    )  # fmt: skip
    if not waits:
        return
    text = f"it waits ×{idle.growth:.1f} as long in the last third of the incident as in the first"
    degree = degree_of(np.log(max(idle.growth, 1e-3)) / np.log(_CARD_GROWTH))
    yield stated("growing", "gpu_utilization_ratio", degree >= 0.5, text, degree=min(max(degree, 0.3), 0.95))
    yield from _engine(view, idle.instance)
    late = late_host(view)
    if late is not None:
        yield stated("host_clean", late.signal, not late.moved, late.text)
    share = view.workload.findings.get("structured_ratio") if view.workload is not None else None
    if share is not None and share.during > _STRUCTURED:
        text = (
            f"{quantity(share.during, 'ratio')} of requests ask for structured output, which halts steps, too"
        )
        yield stated("unprovoked", share.signal, False, text, degree=0.05)
    elif share is None:
        text = "whether structured output is asked for, which halts steps, too, is not known"
        yield stated("unprovoked", "structured_ratio", False, text, degree=0.2)
    yield Reach({"instances": (idle.instance,)})


def _proven(pauses: Pauses) -> bool:
    """A beat that shapes the service, and did not before."""
    now, before = pauses.beat, pauses.beat_before
    if now is None or now.odds > LIKELY or now.depth < WORTH:
        return False
    return before is None or before.depth < 0.5 * now.depth


def _halts(pauses: Pauses) -> bool:
    more = pauses.lost_during / max(pauses.lost_before, 1e-3)
    return _proven(pauses) or (pauses.during >= 3 and more >= 1.5)


def _silences(view: View, pauses: Pauses) -> Output:
    told = []
    degree, onset = 0.0, view.onset
    if pauses.during >= 3:
        longest = quantity(float(pauses.seconds.max()), "seconds")
        told.append(f"{pauses.during} times nothing came out while work was under way, for up to {longest}")
        degree, onset = min(1.0, 0.4 + 0.1 * pauses.during), float(pauses.times[0])
    if _proven(pauses) and pauses.beat is not None:
        told.append("first tokens and ends come in bursts, with silence between them")
        degree = max(degree, degree_of(pauses.beat.depth / WORTH))
    return stated("silences", "inter_token_seconds_p99", True, "; ".join(told), degree=degree, onset=onset)


def _beat(pauses: Pauses) -> Iterator[Output]:
    if _proven(pauses) and pauses.beat is not None:
        every, odds = quantity(pauses.beat.period_seconds, "seconds"), pauses.beat.odds
        text = (
            f"about every {every}: the same gaps in another order are as even in {odds:.1%} of cases at most"
        )
        yield stated(
            "periodic", "inter_token_seconds_p99", True, text, degree=degree_of(pauses.beat.depth / WORTH)
        )
    elif len(pauses.times) >= _FEW and np.isfinite(pauses.odds):
        every = quantity(pauses.period_seconds, "seconds")
        chance = f"random moments are as even in {pauses.odds:.1%} of cases"
        even = pauses.odds <= _ODDS
        text = f"about every {every}; {chance}" if even else f"at no even intervals ({chance})"
        yield stated("periodic", "inter_token_seconds_p99", even, text, degree=0.8 if even else 0.1)
    if np.isfinite(pauses.growth) and (_proven(pauses) or len(pauses.times) >= _FEW):
        text = f"the last is ×{pauses.growth:.1f} as long as the first, by their trend"
        degree = degree_of(np.log(max(pauses.growth, 1e-3)) / np.log(1.3))
        if _proven(pauses) and pauses.during < _FEW:
            degree = max(degree, 0.4)  # halts shorter than chance's own gaps do not show their length
        yield stated("growing", "inter_token_seconds_p99", degree >= 0.5, text, degree=degree)


def _engine(view: View, instance: str) -> Iterator[Output]:
    """The engine's own clocks see a halt of the engine, and not one on the way to it."""
    tails = ("inter_token_seconds_p99", "inter_token_seconds_mean", "ttft_seconds_p95", "e2e_seconds_mean", "ttft_seconds_mean")  # fmt: skip
    seen = [
        f for name in tails for f in view.each.get(name, ()) if _same(f.labels.get("instance", ""), instance)
    ]
    if not seen:
        return
    most = max(seen, key=lambda f: f.effect)
    text = f"the engine's own clocks {'see' if most.effect >= 1 else 'hardly see'} it"
    yield stated(
        "engine_sees", most.signal, most.effect >= 1, text,
        before=most.before, during=most.during, unit=most.unit, degree=degree_of(most.effect),
    )  # fmt: skip


def _same(a: str, b: str) -> bool:
    return not b or a.split(":")[0] == b.split(":")[0]
