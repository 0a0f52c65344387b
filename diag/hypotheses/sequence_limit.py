"""max_num_seqs (or adapter slots) binds while KV and compute are free."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import PRESENT, Explained, stated
from diag.detectors.pool import number_of_fact
from diag.detectors.service import demand_of
from diag.detectors.slots import Slots, parked_slots
from diag.detectors.standstill import standstills
from diag.detectors.view import Pin, View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="sequence_limit",
    title="The limit on running sequences binds while KV is free",
    mechanism="The scheduler runs at most max_num_seqs requests (or as many adapters as there are slots); the rest wait although memory is free.",
    signs=("running pinned at one value while others wait", "KV use low", "the limit is in no metric: start-up log or process arguments"),
    rules_out=("running stays below any ceiling while others wait", "nobody waits"),
    look_alikes={"load_burst": "demand rose until it met an unchanged limit", "long_outputs": "slots are held longer", "kv_cache_exhaustion": "KV is full", "head_of_line_blocking": "one giant holds the step", "engine_stall": "nothing at all is served", "oversized_request": "nothing runs, and the head of the queue cannot fit"},
    mitigations=(
        Mitigation("If the limit was lowered by a change, roll it back.", True),
        Mitigation("Raise --max-num-seqs while KV use stays below 80 %; needs a restart.", False),
    ),
    next_check="Read max_num_seqs from the `non-default args` line of the start-up log or the process' command line.",
    chain=("running_requests", "waiting_requests", "queue_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (("running_requests",), ("waiting_requests",))
_PARKED = ("waiting_deferred_requests", "grammar_queue_requests")
_NO_CEILING = 0.5


def examine(view: View) -> Iterator[Output]:
    """A ceiling, free memory, and whether ceiling or demand moved."""
    pins = [pin for pin in view.pins if not view.affected or pin.instance in view.affected]
    pin = max(pins, key=lambda p: (p.binds, p.waiting), default=None)
    adapters = _adapters(view)
    if adapters is not None and not (pin is not None and pin.binds):
        yield from adapters
        return
    slots = parked_slots(view)
    if slots is not None and slots.binds and slots.parked >= 0.2 * slots.limit:
        yield from _parked(view, slots)
        return
    if pin is None or not pin.binds or pin.ceiling < 0.5:
        yield _free(view, pin)
        return
    free = pin.kv_usage is not None and pin.kv_usage < 0.9
    text = f"{pin.ceiling:.0f} requests run, never more, for {quantity(pin.share, 'ratio')} of the time in which others wait ({pin.waiting:.0f} on average)"
    yield stated(
        "pinned",
        "running_requests",
        True,
        text,
        before=pin.before_most,
        during=pin.ceiling,
        unit="requests",
        onset=pin.onset,
    )
    if pin.kv_usage is not None:
        yield stated(
            "kv_free",
            "kv_cache_usage_ratio",
            free,
            f"KV cache at most {quantity(pin.kv_usage, 'ratio')} full",
            during=pin.kv_usage,
            unit="ratio",
            decisive=pin.kv_usage >= 0.98,
        )
    yield from _serves(view, pin.instance)
    limit = view.fact("max_num_seqs")
    if limit is not None:
        yield stated(
            "known_limit",
            "running_requests",
            limit == f"{pin.ceiling:.0f}",
            f"the start-up arguments say max_num_seqs {limit}",
        )
    lowered = pin.before_most > pin.ceiling + 0.5
    yield stated(
        "lowered",
        "running_requests",
        lowered,
        f"before, up to {pin.before_most:.0f} ran at once" + (": the ceiling fell" if lowered else ""),
        degree=1.0 if lowered else 0.2,
    )
    demand = demand_of(view)
    if demand.known >= 2:
        yield stated(
            "demand_flat",
            "arrivals_per_second",
            not demand.moved,
            f"demand rose: {', '.join(demand.moved)}" if demand.moved else "demand did not rise",
        )
    queue = view.phases.share("queue")
    if queue is not None and free:
        yield Explained(queue)


def _adapters(view: View) -> list[Output] | None:
    """Fewer adapter slots than adapters asked for: who asks for another one is parked, whatever runs. None
    where no slots are stated, or nobody is parked while tokens flow."""
    where = view.affected or tuple(sorted(view.engines))
    limits = [n for one in where if (n := number_of_fact(view, "max_loras", one)) is not None]
    parked = view.fleet.get("waiting_deferred_requests")
    if not limits or parked is None or parked.during < 0.5 or parked.effect < 0.5:
        return None
    text = f"{quantity(parked.during, 'requests')} wait for something other than capacity, and an engine runs {min(limits):.0f} adapters at a time"
    found: list[Output] = [
        stated(
            "pinned", parked.signal, True, text, before=parked.before, during=parked.during, unit="requests",
            onset=parked.onset, degree=min(1.0, 0.5 + parked.effect / 4),
        )
    ]  # fmt: skip
    usage = view.fleet.get("kv_cache_usage_ratio")
    if usage is not None:
        most = max(usage.peak, usage.during)
        text = f"KV cache at most {quantity(most, 'ratio')} full"
        found.append(stated("kv_free", usage.signal, most < 0.9, text, during=most, unit="ratio"))
    changed = [c for c in view.changes if c.kind == "fact" and c.signal == "max_loras"]
    if changed:
        fewer = float(changed[-1].after) < float(changed[-1].before)
        found.append(
            stated(
                "lowered",
                "waiting_deferred_requests",
                fewer,
                f"adapter slots: {changed[-1].text}",
                onset=changed[-1].time,
            )
        )
    demand = demand_of(view)
    if demand.known >= 2:
        text = f"demand rose: {', '.join(demand.moved)}" if demand.moved else "demand did not rise"
        found.append(stated("demand_flat", "arrivals_per_second", not demand.moved, text))
    return found


def _parked(view: View, slots: Slots) -> Iterator[Output]:
    """Requests that wait for an adapter, a transfer or a grammar take the slots of those that could run."""
    text = f"{slots.running:.0f} requests run and {slots.parked:.0f} are parked, together never more than {slots.limit:.0f}, while {slots.waiting:.0f} others wait"
    yield stated(
        "pinned",
        "waiting_deferred_requests",
        True,
        text,
        during=slots.limit,
        unit="requests",
        onset=slots.onset,
    )
    if slots.kv_usage is not None:
        text = f"KV cache at most {quantity(slots.kv_usage, 'ratio')} full"
        yield stated(
            "kv_free", "kv_cache_usage_ratio", slots.kv_usage < 0.9, text, during=slots.kv_usage, unit="ratio",
            decisive=slots.kv_usage >= 0.98,
        )  # fmt: skip
    yield from _serves(view, slots.instance)
    demand = demand_of(view)
    if demand.known >= 2:
        text = f"demand rose: {', '.join(demand.moved)}" if demand.moved else "demand did not rise"
        yield stated("demand_flat", "arrivals_per_second", not demand.moved, text)
    queue = view.phases.share("queue")
    if queue is not None:
        yield Explained(queue)


def _serves(view: View, instance: str) -> Iterator[Output]:
    """A batch that does not advance stands at one number, too."""
    silent = [s for s in standstills(view) if s.instance == instance]
    if silent:
        text = f"{instance} serves nothing at all for {quantity(silent[0].window.seconds, 'seconds')}: that is no limit"
        yield stated("serves", "generation_tokens_per_second", False, text)


def _free(view: View, pin: Pin | None) -> Output:
    """No ceiling: nobody waits, or what runs goes up and down while others do."""
    running, waiting = view.fleet.get("running_requests"), view.fleet.get("waiting_requests")
    held = [waiting, *(view.fleet.get(name) for name in _PARKED)]
    # Whoever is parked waits as well: for a slot of another kind, as far as anybody can tell.
    parked = max((f.during for f in held[1:] if f is not None), default=0.0)
    present = all(f is not None and f.present_ratio >= PRESENT for f in (running, waiting))
    degree = 0.0
    if pin is not None and pin.ceiling < 0.5:
        text = "nothing runs at all while others wait: that is no limit on how many run"
    elif pin is not None:
        # Gauges averaged over a look-back blur a ceiling: near four fifths it may be one.
        degree = min(0.45, 0.6 * pin.share)
        present = present and pin.share < _NO_CEILING
        text = f"no ceiling: the most that ran at once ({pin.ceiling:.0f}) ran for only {quantity(pin.share, 'ratio')} of the time in which others waited"
    elif parked >= 1:
        degree, present = 0.4, False
        text = f"{quantity(parked, 'requests')} are parked; whether a limit holds them is not known"
    elif waiting is not None:
        text = f"nobody waits for long: {quantity(waiting.during, 'requests')} on average"
    else:
        text = "it is not known whether anybody waits"
    return stated("pinned", "running_requests", False, text, degree=degree, decisive=present)
