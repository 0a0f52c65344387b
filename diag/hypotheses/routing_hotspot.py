"""The router sends too much to some replicas while others idle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import Explained, Reach, degree_of, flat, stated
from diag.detectors.peers import Spread, spread_of
from diag.detectors.rates import rate_over_all
from diag.detectors.standstill import standstills
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation, Window
from diag.quantities import quantity

CARD = Card(
    id="routing_hotspot",
    title="The router overloads one replica while others idle",
    mechanism="Routing by cache (or by a hash) follows a popular prefix to one replica: hits rise a little, that replica queues, and those beside it have room.",
    signs=("one replica's share of the requests is far above even", "it queues, its peers do not", "its hit rate holds or rises", "the rate over all is as before"),
    rules_out=("one replica only", "requests are spread evenly"),
    look_alikes={"slow_gpu": "an even share takes longer", "load_burst": "all replicas get more", "stale_cache_peer": "asked for keys, not for answers", "tenant_dominance": "one tenant sends more"},
    mitigations=(
        Mitigation("Lower the weight of cache affinity, or route by least load until the queue is gone.", True),
        Mitigation("Cap the imbalance the router allows (absolute and relative), or copy the popular prefix to more replicas.", False),
    ),
    next_check="Requests a second and waiting requests by replica, side by side, with the router's policy and its last change.",
    chain=("replica_switch_ratio", "first_tokens_per_second", "running_requests", "waiting_requests", "queue_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (("first_tokens_per_second", "running_requests"),)
_AWAY = 0.2  # of the incident


def examine(view: View) -> Iterator[Output]:
    """Who gets how much, who queues, and whether the whole is more than before."""
    replicas = max(
        len(view.engines), len(view.workload.requests.instances) if view.workload is not None else 0
    )
    if replicas < 2:
        told = view.workload is not None and len(view.workload.requests.instances) == 1
        text = "every request went to one replica" if told else "only one replica is seen"
        yield stated("replicas", "first_tokens_per_second", False, text, decisive=told)
        return
    spread = spread_of(view)
    if spread is None:
        return
    yield _share(spread)
    rate = rate_over_all(view)
    if rate is not None:
        yield flat("rate_flat", rate, "requests a second over all", sign=1)
    if spread.during - spread.before <= 0.3:
        return
    yield from _queues(view, spread)
    hits = [
        f for f in view.each.get("prefix_cache_hit_ratio", ()) if _same(f.labels.get("instance", ""), spread)
    ]
    if hits:
        yield flat("hits_hold", hits[0], f"hit rate of {spread.instance}", sign=-1)
    away = [(o.target, o.window) for o in view.outages if o.target in view.engines]
    # One that answers its scrapes and serves nobody leaves its part to the others as well.
    away += [(s.instance, s.window) for s in standstills(view)]
    gone = [who for who, window in away if not _same(who, spread) and _counts(view, window)]
    if view.case.of("target_up"):
        text = f"{gone[0]} was away, or served nobody" if gone else "no other replica was away"
        yield stated("peers_alive", "target_up", not gone, text, degree=0.0 if gone else 1.0)
    yield Reach({"instances": (spread.instance,)})


def _counts(view: View, window: Window) -> bool:
    """Whether an absence is long enough to move work to others, and not a few lost scrapes."""
    seen = view.spans.incident
    inside = min(window.end, seen.end) - max(window.start, seen.start)
    return inside >= _AWAY * seen.seconds


def _share(spread: Spread) -> Output:
    """Twice an even part, or three deviations of chance above its own past."""
    gain = spread.during - spread.before
    effect = min(gain / 0.5, gain / max(3 * spread.sigma, 1e-6))
    degree = degree_of(effect)
    text = (
        f"{spread.instance} gets ×{spread.during:.1f} of an even share (before: ×{spread.before:.1f}) "
        f"of the requests to {spread.replicas} replicas"
    )
    sure = degree < 0.5 and gain + 3 * spread.sigma < 0.5
    return stated("share", "first_tokens_per_second", degree >= 0.5, text, degree=degree, decisive=sure)


def _queues(view: View, spread: Spread) -> Iterator[Output]:
    """The queue (or the work at hand) stands at the hot replica and not at its peers."""
    for name, words in (("waiting_requests", "queue"), ("running_requests", "work")):
        found = view.each.get(name, ())
        hot = [f.during for f in found if _same(f.labels.get("instance", ""), spread)]
        rest = [f.during for f in found if not _same(f.labels.get("instance", ""), spread)]
        if not hot or not rest or hot[0] < 1:
            continue
        mean = float(np.mean(rest))
        apart = (hot[0] + 0.5) / (mean + 0.5)
        degree = degree_of(np.log(max(apart, 1e-3)) / np.log(1.8))
        text = f"{hot[0]:.1f} requests {words} at {spread.instance}, {mean:.1f} at each other replica"
        yield stated("apart", name, degree >= 0.5, text, degree=degree)
        break
    slow = set(view.affected)
    if slow:
        here = any(_same(name, spread) for name in slow)
        only = here and bool(view.spared)
        text = f"slow: {', '.join(sorted(slow))} of {len(view.engines)}"
        yield stated(
            "hot_is_slow", "ttft_seconds_mean", only, text, degree=1.0 if only else 0.6 if here else 0.0
        )
        if only:
            yield Explained(0.7)
    share = view.phases.share("queue")
    if share is not None:
        text = f"{quantity(share, 'ratio')} of the extra wait is queue"
        yield stated("queue", "queue_seconds_mean", share >= 0.4, text, degree=share)


def _same(name: str, spread: Spread) -> bool:
    return name.split(":")[0] == spread.instance.split(":")[0]
