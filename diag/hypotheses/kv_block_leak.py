"""Blocks stay taken after their requests ended: the pool's floor only rises, until a restart.

Aborts and connectors that never report completion leave blocks behind. With nothing running the pool must
be empty (evictable cached blocks count as free); while something runs its floor must follow the work."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import PRESENT, Explained, Reach, flat, stated
from diag.detectors.pool import Floor, floor_of, use_around
from diag.detectors.service import demand_of
from diag.detectors.silence import same_instance
from diag.detectors.standstill import seen_ratio, standstills
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="kv_block_leak",
    title="KV blocks stay taken after their requests ended",
    mechanism="Blocks of requests that were aborted or handed to a connector are never freed. The pool shrinks from below until admissions wait or thrash, though little runs; only a restart gives it back.",
    signs=("KV use well above zero with nothing running or waiting", "the floor of KV use only rises, at flat work", "a restart resets it"),
    rules_out=("KV use returns to its floor when work goes down",),
    look_alikes={
        "kv_cache_exhaustion": "the pool is full of requests that run",
        "context_growth": "what runs got longer",
        "telemetry_fault": "left-over gauges: use and running stand still together",
        "abandoned_requests": "slots of clients that left are freed when the answer ends",
    },
    mitigations=(
        Mitigation("Drain the instance; if KV use stays above zero with nothing running, restart it.", True),
        Mitigation("Turn the connector or offload feature off, or upgrade past the fix; cap aborts at the gateway meanwhile.", False),
    ),
    next_check="Drain one instance and read its KV use with running and waiting at 0.",
    chain=("kv_cache_usage_ratio", "waiting_requests", "preemptions_per_second", "queue_seconds_mean", "ttft_seconds_mean"),
    leads_to=("kv_cache_exhaustion", "prefix_cache_broken"),
)  # fmt: skip

NEEDS = (("kv_cache_usage_ratio",), ("running_requests",))
_HELD = 0.05  # of the pool, with nothing running: more than a request that has just ended
_ROSE = 0.10
_FULL = 0.9


def examine(view: View) -> Iterator[Output]:
    """The floor of the pool, idle and busy, and whether work explains it."""
    floors = [
        f for where in view.affected or sorted(view.engines) if (f := floor_of(view, where)) is not None
    ]
    if not floors:
        yield stated(
            "floor",
            "kv_cache_usage_ratio",
            False,
            "the window is too short to see a floor of KV use",
            degree=0.4,
        )
        return
    worst = max(floors, key=lambda f: (f.idle or 0.0, f.unaccounted))
    frozen = bool(view.case.page_stalls.get(worst.instance))
    yield from _idle(view, worst)
    yield _floor(view, worst)
    if frozen:
        yield stated("page_moves", "engine_cpu_ratio", False, f"the page of {worst.instance} stands still")
    yield from _harm(view, worst)
    yield from _reset(view, worst)
    yield from _shared(view)
    demand = demand_of(view)
    # Leaked blocks push cached ones out: that fewer tokens are cached is a consequence.
    moved = [what for what in demand.moved if "cached" not in what]
    if demand.known >= 2:
        text = f"demand rose: {', '.join(moved)}" if moved else "rate and lengths did not rise"
        yield stated(
            "demand_flat",
            "prompt_tokens_per_request_mean",
            not moved,
            text,
            degree=1 - demand.degree if moved else 1.0,
        )
    running = view.fleet.get("running_requests")
    if running is not None and not view.fleet["kv_cache_usage_ratio"].peak >= 0.95:
        yield flat("work_flat", running, "the running batch", sign=1)
    left = view.finding("aborted_ratio", "aborted_requests_per_second")
    if left is not None and left.effect >= 1:
        yield stated(
            "departures",
            left.signal,
            True,
            "clients leave meanwhile, and what they leave must be freed",
            onset=left.onset,
        )
    if _leaks(worst):
        yield Reach({"instances": tuple(f.instance for f in floors if _leaks(f))})


def _leaks(floor: Floor) -> bool:
    idle = floor.idle is not None and floor.idle > _HELD
    return idle or (floor.unaccounted >= _ROSE and floor.late - floor.early >= _ROSE and floor.rising >= 0.7)


def _idle(view: View, floor: Floor) -> Iterator[Output]:
    if floor.idle is None:
        return
    text = f"KV cache {quantity(floor.idle, 'ratio')} full with nothing running on {floor.instance}"
    late = floor.idle_at is not None and floor.idle_at >= view.spans.incident.start
    yield stated(
        "idle", "kv_cache_usage_ratio", floor.idle > _HELD, text, during=floor.idle, unit="ratio", onset=floor.onset,
        decisive=late and floor.idle < 0.02,
    )  # fmt: skip


def _floor(view: View, floor: Floor) -> Output:
    numbers = f"{quantity(floor.early, 'ratio')} early, {quantity(floor.late, 'ratio')} late in the window"
    true = floor.unaccounted >= _ROSE and floor.late - floor.early >= _ROSE and floor.rising >= 0.7
    text = f"the floor of KV use on {floor.instance}: {numbers}; {quantity(max(floor.unaccounted, 0.0), 'ratio')} more than the running requests explain"
    whole = min(seen_ratio(view, "kv_cache_usage_ratio"), seen_ratio(view, "running_requests")) >= PRESENT
    degree = min(1.0, 0.5 + floor.unaccounted) if true else 0.3 if floor.unaccounted > 0.05 else 0.0
    if same_instance(view.case, "prompt_tokens_per_request_mean", floor.instance) is None:
        # Longer requests lift the floor as well, and nobody knows how long these are.
        degree, whole = min(degree, 0.6), False
    return stated(
        "floor", "kv_cache_usage_ratio", true, text, before=floor.early, during=floor.late, unit="ratio",
        onset=floor.onset, degree=degree,
        decisive=whole and floor.unaccounted < 0.03,
    )  # fmt: skip


def _harm(view: View, floor: Floor) -> Iterator[Output]:
    """Leaked blocks hurt nobody until the pool is full of them."""
    usage = [
        f for f in view.each.get("kv_cache_usage_ratio", ()) if f.labels.get("instance") == floor.instance
    ]
    if not usage:
        return
    most = max(usage[0].peak, usage[0].during)
    text = f"the pool of {floor.instance} is up to {quantity(most, 'ratio')} full"
    yield stated(
        "full", "kv_cache_usage_ratio", most >= _FULL, text, during=most, unit="ratio", onset=usage[0].onset
    )
    queue = view.phases.share("queue")
    mute = [s for s in standstills(view) if s.instance == floor.instance and (s.kv_usage or 0.0) >= _FULL]
    if most >= _FULL and _leaks(floor) and (queue is not None or mute):
        silent = sum(s.window.seconds for s in mute) / view.spans.incident.seconds
        yield Explained(min(1.0, max(queue or 0.0, silent)))


def _reset(view: View, floor: Floor) -> Iterator[Output]:
    began = [c for c in view.changes if c.kind == "restart" and c.target == floor.instance]
    if not began or floor.before_restart is None:
        return
    text = f"the restart took the floor from {quantity(floor.before_restart, 'ratio')} to {quantity(floor.early, 'ratio')}"
    yield stated(
        "reset", "kv_cache_usage_ratio", floor.early < 0.5 * floor.before_restart, text, onset=began[-1].time
    )


def _shared(view: View) -> Iterator[Output]:
    """Hits that go while there is room were not pushed out: what was shared is then held by each request."""
    hits = view.fleet.get("prefix_cache_hit_ratio")
    if hits is None or hits.effect > -1 or hits.onset is None:
        return
    most = use_around(view, hits.onset)
    if most is not None and most < _FULL:
        text = f"prefix-cache hits went when the pool was {quantity(most, 'ratio')} full: requests that shared blocks each hold their own since"
        yield stated(
            "shared_still", hits.signal, False, text, before=hits.before, during=hits.during, unit="ratio"
        )
