"""One tenant takes most of the tokens, and the others wait behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diag.detectors.cues import Explained, Named, Reach, rises, stated
from diag.detectors.view import View
from diag.detectors.workload import Workload
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation, Stance
from diag.quantities import quantity

CARD = Card(
    id="tenant_dominance",
    title="One tenant takes most of the capacity",
    mechanism="First-come-first-served scheduling gives a client what it asks for: one that floods the queue makes all others wait.",
    signs=("one tenant's share of tokens rose", "the others' demand is level, their waits are up"),
    rules_out=("shares are stable", "there is one tenant only"),
    look_alikes={"load_burst": "all tenants send more; engine metrics carry no tenant, so only records tell them apart"},
    mitigations=(
        Mitigation("Limit that tenant's requests in flight at the gateway (not requests per minute: that wastes idle capacity).", True),
        Mitigation("Schedule fairly by tokens served per client, or give that tenant a replica of its own.", False),
    ),
    next_check="Ask the top tenant what it started; look at its requests in flight.",
    chain=("top_tenant_ratio", "arrivals_per_second", "waiting_requests", "queue_seconds_mean", "ttft_seconds_mean"),
    leads_to=("load_burst", "kv_cache_exhaustion", "sequence_limit"),
)  # fmt: skip

NEEDS = (("top_tenant_ratio",),)


def examine(view: View) -> Iterator[Output]:
    """Share up, the others' demand level, the others slower."""
    share = view.finding("top_tenant_ratio")
    if share is None:
        return
    name = share.labels.get("tenant", "")
    evidence = rises(
        "share", share, f"share of tokens of tenant {name}" if name else "largest tenant's share of tokens"
    )
    if share.during < 0.5:
        # Half of the tokens is the least that "most" can mean.
        evidence = replace(evidence, degree=min(evidence.degree, 0.3), stance=Stance.AGAINST)
    yield evidence
    if view.workload is not None and name:
        yield from _others(view.workload, view, name)
    queue = view.phases.share("queue")
    if queue is not None:
        yield stated(
            "queue",
            "queue_seconds_mean",
            queue >= 0.4,
            f"{quantity(queue, 'ratio')} of the extra wait is queueing",
            degree=queue,
        )
        if evidence.degree >= 0.5:
            yield Explained(queue)
    if evidence.degree >= 0.5 and view.workload is not None and name:
        yield Named(f"tenant {name} takes most of the capacity")
        yield Reach({"tenants": (name,)})


def _others(work: Workload, view: View, name: str) -> Iterator[Output]:
    r = work.requests
    others = r.tenant != r.tenants.index(name)
    spans = view.spans
    before = float((others & work.baseline).sum() / max(work.quiet.seconds, 1))
    during = float((others & work.incident).sum() / max(spans.settled.seconds, 1))
    own_before = float((~others & work.baseline).sum() / max(work.quiet.seconds, 1))
    own = float((~others & work.incident).sum() / max(spans.settled.seconds, 1))
    level = during <= 1.35 * before
    text = f"the other tenants send {quantity(during, 'per second')} (before {quantity(before, 'per second')}), {name} {quantity(own, 'per second')} (before {quantity(own_before, 'per second')})"
    yield stated(
        "others_level", "arrivals_per_second", level, text, before=before, during=during, unit="per second"
    )
    if own_before > 0:
        more = own > 1.15 * own_before
        text = f"{name} sends {'more' if more else 'no more'} requests than before"
        yield stated(
            "more", "arrivals_per_second", more, text, before=own_before, during=own, unit="per second"
        )
    waits = [r.waited[others & window] for window in (work.baseline, work.incident)]
    waits = [w[np.isfinite(w)] for w in waits]
    if all(len(w) >= 8 for w in waits):
        a, b = (float(np.median(w)) for w in waits)
        yield stated(
            "others_wait",
            "client_ttft_seconds",
            b > 1.5 * a,
            f"their first token went from {quantity(a, 'seconds')} to {quantity(b, 'seconds')}",
            before=a,
            during=b,
            unit="seconds",
        )
