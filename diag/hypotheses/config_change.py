"""A deploy, flag, image or model change is the step.

Coincidence in time is not enough: many deploys are harmless. What convinces is that the change hit the
affected instances, altered something that limits them, or left instances without it unharmed.
"""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.changes import Change
from diag.detectors.cues import Explained, Named, Reach, stated
from diag.detectors.service import demand_of
from diag.detectors.view import View
from diag.detectors.whom import engines_changed
from diag.hypotheses.registry import Output
from diag.model import Card, Missing, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="config_change",
    title="A change rolled out just before is the cause",
    mechanism="A deploy, flag, image or model change altered capacity, scheduling or caching; the service is worse from that moment on.",
    signs=("an event or a changed setting shortly before the onset", "the restarted instances are the slow ones", "a limit that is lower than before: fewer KV blocks, fewer sequences"),
    rules_out=("no change near the onset", "instances without the change are equally hit"),
    look_alikes={"engine_restart": "same settings, cold caches: passes by itself", "load_burst": "demand rose at the same time"},
    mitigations=(
        Mitigation("Roll the change back on one replica and compare it with the others.", True),
        Mitigation("Freeze further rollouts until the comparison is in.", True),
    ),
    next_check="Diff the start-up arguments (`non-default args` line, cache_config_info) before and after.",
    chain=("kv_capacity_tokens", "target_up", "running_requests", "kv_cache_usage_ratio", "waiting_requests", "queue_seconds_mean", "ttft_seconds_mean"),
    leads_to=("kv_cache_exhaustion", "sequence_limit", "prefix_cache_off", "prefix_cache_broken", "engine_restart", "cuda_graph_gap"),
)  # fmt: skip

_MEASURED = frozenset({"kv_blocks", "kv_capacity_tokens"})
NEEDS = (("fact:cache_config", "event:any", "engine_start_time_seconds", "fact:kv_blocks"),)


def examine(view: View) -> Iterator[Output]:
    """Changes near the onset, what they touched, and whether demand offers another reason."""
    near = [c for c in view.changes if view.near_onset(c) and view.concerns(c.target)]
    # A marked restart alone changes nothing; the room of restarts tells it.
    marked = [c for c in near if c.kind == "event" and c.signal != "restart"]
    facts = [c for c in near if c.kind == "fact"]
    # What an engine measured at start-up is nobody's setting: less memory was free, for whatever reason.
    if not marked and all(c.signal in _MEASURED for c in facts):
        measured, facts = facts, []
    else:
        measured = []
    restarts = [c for c in near if c.kind == "restart"]
    if not marked and not facts:
        yield from _measured(measured) if measured else _nothing(view)
        return
    if marked:
        yield stated(
            "event", "target_up", True, f"{_lead(view, marked[-1])}: {marked[-1].text}", onset=marked[-1].time
        )
    if facts:
        text = "; ".join(dict.fromkeys(c.text for c in facts[:3]))
        yield stated(
            "setting", "kv_capacity_tokens", True, f"settings differ from before: {text}", onset=facts[0].time
        )
    elif restarts and marked:
        yield stated(
            "restarted",
            "engine_start_time_seconds",
            True,
            f"{restarts[-1].target} was restarted with it",
            onset=restarts[-1].time,
        )
    if marked and not facts and not restarts:
        # A marked change that left every engine process alone did not reconfigure an engine.
        alive = view.fleet.get("engine_start_time_seconds")
        if alive is not None:
            yield stated(
                "restarted", alive.signal, False, "no engine was restarted and no engine setting changed"
            )
    lowered = [p for p in view.pins if p.binds and p.before_most > p.ceiling + 0.5]
    if lowered:
        text = f"at most {lowered[0].ceiling:.0f} requests run since, {lowered[0].before_most:.0f} before"
        yield stated(
            "limit",
            "running_requests",
            True,
            text,
            before=lowered[0].before_most,
            during=lowered[0].ceiling,
            unit="requests",
        )
    yield from _capacity(facts)
    demand = demand_of(view)
    if demand.known >= 2:
        yield stated(
            "demand_flat",
            "arrivals_per_second",
            not demand.moved,
            f"but demand moved as well: {', '.join(demand.moved)}"
            if demand.moved
            else "demand did not change: same rate, same lengths",
        )
    if view.spared and view.affected:
        touched = {c.target.split(":")[0] for c in near}
        only = all(_is_touched(i, touched) for i in view.affected) and not any(
            _is_touched(i, touched) for i in view.spared
        )
        yield stated(
            "contrast",
            "ttft_seconds_mean",
            only,
            "only the changed instances are slow"
            if only
            else "instances without the change are slow, or changed ones are not",
        )
    what = marked[-1].text if marked else facts[0].text if facts else "a restart with other settings"
    yield Named(f"a change just before is the cause ({what})")
    if facts or lowered:
        queue = view.phases.share("queue")
        yield Explained(queue if queue is not None else 0.8)
    named = [c for c in near if c.target.split(":")[0] in {i.split(":")[0] for i in view.engines}]
    changed = engines_changed(view, near[0].time) or view.engines_named(c.target for c in named)
    yield Reach({"instances": changed or view.affected})


def _lead(view: View, change: Change) -> str:
    seconds = view.onset - change.time
    when = f"{quantity(abs(seconds), 'seconds')} {'before' if seconds >= 0 else 'after'} the onset"
    return f"{change.signal} on {change.target or 'the service'} {when}"


def _capacity(facts: list[Change]) -> Iterator[Output]:
    for change in facts:
        try:
            before, after = float(change.before), float(change.after)
        except ValueError:
            continue
        if after < 0.9 * before:
            yield stated(
                "limit",
                "kv_capacity_tokens",
                True,
                f"{change.signal} fell from {change.before} to {change.after}",
                before=before,
                during=after,
                onset=change.time,
            )
            return


def _measured(facts: list[Change]) -> Iterator[Output]:
    text = f"{facts[0].text}: measured at start-up, no setting is known to have changed"
    yield stated("setting", "kv_capacity_tokens", False, text, degree=0.2)


def _is_touched(instance: str, targets: set[str]) -> bool:
    return instance.split(":")[0] in targets


def _nothing(view: View) -> Iterator[Output]:
    started = view.fleet.get("engine_start_time_seconds")
    facts = any(True for _ in view.case.facts_named("cache_config"))
    same = started is not None and abs(started.during - started.before) < 1
    if same or facts:
        since = f" since {quantity(started.during, 'unix seconds')}" if started is not None else ""
        what = f"the engine process has run{since}" if same else "the engine's settings are the same"
        told = any(event.marked for event in view.case.events)
        rest = "and no marked change is near the onset" if told else "changes elsewhere are not known"
        text = f"{what}: no engine setting can have changed; {rest}"
        # Clients, gateways and models change without an engine's restart: without events nobody knows.
        yield stated("setting", "engine_start_time_seconds", False, text, decisive=same and facts and told)
    if not any(e.marked for e in view.case.events):
        yield Missing(
            "events",
            'no deploy or configuration events are known: give --events FILE with {"time", "kind", "target", "text"} lines',
        )
