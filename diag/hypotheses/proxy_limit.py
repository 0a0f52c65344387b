"""A pool, a timeout or a buffer in the gateway lets no more through."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.clients import crowding_of_hit, hit_clients
from diag.detectors.cues import Explained, degree_of, rises, stated
from diag.detectors.in_flight import Deadline, InFlight, deadline_of, in_flight
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="proxy_limit",
    title="A limit in the gateway binds: its pool or its timeout",
    mechanism="The gateway keeps only so many requests open, or only for so long: the rest wait in it while the engines have room, or end as 504 at a round time.",
    signs=("requests at the engines stand at one number while clients wait", "the engines queue nothing and have memory free", "failures at a round time (30, 60 s)", "all clients alike"),
    rules_out=("nobody waits outside the engines", "the engines' own time carries the excess"),
    look_alikes={"network_latency": "time is lost, but nothing stands at a number", "client_limit": "one client alone waits, for itself", "sequence_limit": "the engine queues: waiting is above 0"},
    mitigations=(
        Mitigation("Raise the gateway's connection or concurrency limit step by step and watch the engines' queue.", True),
        Mitigation("Raise the read timeout on model routes at every hop; send heartbeats while streaming.", True),
        Mitigation("Limit admission at one place only, the engine's max-num-seqs.", False),
    ),
    next_check="The gateway's open upstream connections against its configured limit; its error log for 504 and 'limiting'.",
    chain=("running_requests", "gateway_wait_seconds", "client_gap_seconds", "client_ttft_seconds", "error_ratio"),
)  # fmt: skip

NEEDS = (("client_duration_seconds", "client_ttft_seconds"),)


def examine(view: View) -> Iterator[Output]:
    """Engines at one number with clients outside; failures at a round time; the gateway's own clock."""
    deadline = None
    if view.workload is not None:
        work = view.workload
        deadline = deadline_of(work.requests, work.baseline, work.incident)
        if deadline is not None:
            yield from _timeouts(deadline)
    # Answers that are cut off need no queue: the pool's signs are then not asked for.
    if deadline is None or not _cuts(deadline):
        yield from _pool(view)
    yield from _everyone(view)


def _pool(view: View) -> Iterator[Output]:
    flow = in_flight(view)
    if flow is not None:
        yield from _pinned(flow)
    rank = crowding_of_hit(view)
    if rank is not None:
        text = f"who came while more were under way waited longer (rank correlation {rank:.2f})"
        yield stated("crowded", "client_ttft_seconds", rank >= 0.25, text, degree=degree_of(rank / 0.25))
    yield from _outside(view)
    waited = view.finding("gateway_wait_seconds")
    if waited is not None:
        yield rises("gateway_wait", waited, "time in the gateway beyond its upstream's")


def _pinned(flow: InFlight) -> Iterator[Output]:
    more = flow.outside_during - flow.outside_before
    if not flow.pinned or more < 1:
        text = f"{quantity(flow.outside_during, 'requests')} wait outside the engines (before: {quantity(flow.outside_before, 'requests')})"
        yield stated("pinned", "running_requests", False, text, decisive=more < 0.2)
        return
    degree = min(1.0, max(0.0, flow.pinned - 0.4) / 0.5) * degree_of(
        0.5 + more / max(0.5 * flow.ceiling, 2.0)
    )
    text = (
        f"while {quantity(flow.outside_during, 'requests')} wait outside, the engines stand at "
        f"{flow.ceiling:.0f} for {quantity(flow.pinned, 'ratio')} of the time"
    )
    yield stated("pinned", "running_requests", degree >= 0.5, text, degree=degree, onset=flow.onset)
    room = flow.waiting < max(0.5, 0.05 * flow.ceiling)
    text = f"{quantity(flow.waiting, 'requests')} queue in the engines meanwhile"
    yield stated("engine_room", "waiting_requests", room, text, degree=1.0 if room else 0.1)


def _outside(view: View) -> Iterator[Output]:
    share = view.phases.share("gap")
    if share is None:
        return
    text = f"{quantity(share, 'ratio')} of the extra first-token time passes outside the engine"
    yield stated("outside", "client_gap_seconds", share >= 0.5, text, degree=share)
    if share >= 0.5:
        yield Explained(share)


def _cuts(deadline: Deadline) -> bool:
    """Answers that used to take longer are cut; or those that are, are long by themselves, and no other slower."""
    if deadline.share < 0.6 or deadline.longer_during > 0.001:
        return False
    return deadline.longer_before >= 0.005 or (deadline.longer_prompts >= 3 and deadline.pace <= 1.2)


def _timeouts(deadline: Deadline) -> Iterator[Output]:
    """Failures at one round time; and whether answers used to take longer than that without failing."""
    true = deadline.share >= 0.6
    limit = quantity(deadline.seconds, "seconds")
    text = f"{quantity(deadline.share, 'ratio')} of {deadline.failures} failures come at {limit}"
    if not true:
        text = f"failures come at no one round time ({text} at most)"
    yield stated(
        "timeouts", "error_ratio", true, text, degree=min(1.0, deadline.share / 0.9) if true else 0.3
    )
    if not true:
        return
    cuts = _cuts(deadline)
    text = (
        f"{quantity(deadline.longer_before, 'ratio')} of answers took longer than {limit} before, "
        f"{quantity(deadline.longer_during, 'ratio')} since"
    )
    if deadline.longer_prompts >= 3 and np.isfinite(deadline.pace):
        text += f"; those that fail have prompts ×{deadline.longer_prompts:.0f} as long, the others take ×{deadline.pace:.2f} what they did"
    yield stated("cut_off", "client_duration_seconds", cuts, text, degree=1.0 if cuts else 0.2)
    if cuts:
        yield Explained(0.8)


def _everyone(view: View) -> Iterator[Output]:
    """A gateway's limit meets all clients; what meets one client alone is that client's."""
    hit = hit_clients(view)
    if hit is None or hit.known < 2:
        return
    if not hit.names:
        return  # nobody's own wait stands out: that tells no client from another
    alike = len(hit.names) > 1 or hit.share < 0.5
    text = f"{len(hit.names)} of {hit.known} clients wait longer"
    yield stated("everyone", "top_tenant_ratio", alike, text, degree=1.0 if alike else 0.1)
