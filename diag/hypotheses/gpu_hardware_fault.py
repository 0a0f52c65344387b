"""A card reports a fault of its own: memory, bus, firmware."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diag.detectors.cues import PRESENT, Explained, Reach, stated
from diag.detectors.faults import Fault, faults_of, watched
from diag.detectors.gpus import gpu_name
from diag.detectors.places import Here
from diag.detectors.view import View
from diag.detectors.whom import engines_on
from diag.hypotheses.registry import Output
from diag.model import Card, Labels, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="gpu_hardware_fault",
    title="A GPU reports a hardware fault",
    mechanism="Memory that can't be corrected, a card off the bus or firmware that hangs kills the work on it: the engine dies, hangs or starts again.",
    signs=("a new Xid of the card's own (48, 63, 64, 74, 79, 94, 95, 119)", "uncorrectable errors or given-up rows grow", "one PCI address again and again", "the engine fails just after"),
    rules_out=("fault counters rest, with the series alive",),
    look_alikes={"engine_restart": "starts anew without a fault before it", "engine_stall": "hangs without a fault", "gpu_link_degraded": "slower, but nothing dies"},
    mitigations=(
        Mitigation("Drain the card's replica and keep it out of rotation.", True),
        Mitigation("Reset the GPU or reboot the node; replace the card if the fault comes back at the same PCI address.", False),
    ),
    next_check="dmesg -T | grep -i xid, and nvidia-smi -q -d ECC,ROW_REMAPPER on the node: which address, how often.",
    chain=("gpu_uncorrectable_ecc_errors", "gpu_remapped_rows", "gpu_xid_code", "gpu_xid_events", "target_up", "error_ratio", "ttft_seconds_mean"),
    leads_to=("engine_restart", "engine_stall", "prefill_interference"),
)  # fmt: skip

NEEDS = (
    ("gpu_xid_code", "gpu_xid_events", "gpu_uncorrectable_ecc_errors", "gpu_remapped_rows", "event:xid"),
)

_BEFORE_SECONDS = 600.0  # memory that fails kills when it is next used, not at once
_TOGETHER_SECONDS = 10.0
_TELLS = ("gpu_xid_code", "gpu_xid_events", "gpu_uncorrectable_ecc_errors", "gpu_remapped_rows")


def examine(view: View) -> Iterator[Output]:
    """Faults near the onset; of the card or of the program; and what failed just after."""
    near = [f for f in faults_of(view) if view.onset - _BEFORE_SECONDS <= f.time <= view.spans.incident.end]
    hard = [f for f in near if f.hard]
    if not hard:
        yield _none(view, near)
        return
    first = hard[0]
    died = _died_after(view, first)
    here = Here(first.sure or bool(died))  # whose card it was is told by who died of it
    text = f"{first.text} on {first.where}" + (f", {len(hard)} such events" if len(hard) > 1 else "")
    yield here.judge(stated("fault", "gpu_xid_code", True, text, onset=first.time))
    memory = [f for f in hard if not f.text.startswith("Xid")]
    if memory:
        text = f"{memory[0].text} on {memory[0].where}"
        yield here.judge(stated("memory", "gpu_uncorrectable_ecc_errors", True, text, onset=memory[0].time))
    cards = _at_once(hard)
    if cards > 1:
        text = f"{cards} cards fault within {quantity(_TOGETHER_SECONDS, 'seconds')}: a program or the fabric"
    else:
        text = f"only {first.where} faults"
    yield stated("one_card", "gpu_xid_code", cards <= 1, text, degree=1.0 if cards <= 1 else 0.2)
    yield from _followed(view, first, [time for _, time in died])
    names = tuple(dict.fromkeys(f.where for f in hard))
    gone = view.engines_named(who for who, _ in died)
    yield Reach({"gpus": names, "instances": gone or engines_on(view, _labels(view, names))})


def _none(view: View, soft: Sequence[Fault]) -> Output:
    seen = watched(view)
    if soft:
        text = f"{soft[0].text} on {soft[0].where}: raised by programs, seldom by the card"
        return stated("fault", "gpu_xid_code", False, text, degree=0.3)
    text = "no fault was counted on the slow engines' cards"
    return stated("fault", "gpu_xid_code", False, text, decisive=seen >= PRESENT)


def _labels(view: View, names: Sequence[str]) -> tuple[Labels, ...]:
    seen = [s.labels for signal in _TELLS for s in view.case.of(signal)]
    return tuple(one for one in seen if gpu_name(one) in names)


def _at_once(hard: Sequence[Fault]) -> int:
    """The most cards that fault within ten seconds of each other."""
    return max(len({g.where for g in hard if abs(g.time - f.time) <= _TOGETHER_SECONDS}) for f in hard)


def _died_after(view: View, first: Fault) -> list[tuple[str, float]]:
    """Which slow engines went away, and when, in the ten minutes after a fault."""
    slack = 2 * view.case.step_seconds + view.spans.look_back_seconds
    died = [(c.target, c.time) for c in view.changes if c.kind == "restart" and view.concerns(c.target)]
    died += [(o.target, o.window.start) for o in view.outages if view.concerns(o.target)]
    return [(who, t) for who, t in died if first.time - slack <= t <= first.time + _BEFORE_SECONDS]


def _followed(view: View, first: Fault, after: Sequence[float]) -> Iterator[Output]:
    """A fault that nobody felt is a fault all the same, but not this incident's cause."""
    slack = 2 * view.case.step_seconds + view.spans.look_back_seconds
    felt = view.symptomatic and first.time <= view.onset + slack
    if after:
        text = f"the engine on it went away {quantity(max(min(after) - first.time, 0.0), 'seconds')} later"
        yield stated("followed", "target_up", True, text)
        yield Explained(0.8)
        return
    wait = quantity(max(view.onset - first.time, 0.0), "seconds")
    text = f"users feel it {wait} later" if felt else "users had felt it before the first fault"
    yield stated("followed", "target_up", felt, text, degree=0.8 if felt else 0.1)
