"""More work arrives than capacity: the queue grows and the first token is waiting time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diag.detectors.cues import Explained, flat, rises, stated
from diag.detectors.findings import fleet_series
from diag.detectors.rates import rate_over_all
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Mitigation
from diag.quantities import quantity
from diag.signals import SIGNALS

CARD = Card(
    id="load_burst",
    title="More requests arrive than the engine can serve",
    mechanism="Requests arrive faster than they are served; the queue grows and time to first token is waiting.",
    signs=("arrival rate up, over all tenants", "waiting requests and queue time carry the excess", "lengths, hit rate and clocks level"),
    rules_out=("the arrival rate is level", "the excess is not queue time"),
    look_alikes={
        "tenant_dominance": "one tenant's share rose; engine metrics alone cannot tell the two apart",
        "abandoned_requests": "the extra arrivals are retries of requests that were cut",
        "sequence_limit": "the limit fell, demand did not rise",
        "routing_hotspot": "one replica only",
    },
    mitigations=(
        Mitigation("Shed or defer batch traffic at the gateway (per-tenant rate limits, 429 with Retry-After).", True),
        Mitigation("Add replicas, or raise --max-num-seqs while KV use is low.", False),
    ),
    next_check="Break arrivals down by tenant and client over the last hour in the gateway's log.",
    chain=("arrivals_per_second", "first_tokens_per_second", "running_requests", "waiting_requests", "kv_cache_usage_ratio", "queue_seconds_mean", "ttft_seconds_mean"),
    leads_to=("kv_cache_exhaustion", "sequence_limit", "abandoned_requests"),
)  # fmt: skip

# A service that was well used is overloaded by a quarter more; whether it is, its queue says.
_SMALLEST = 0.6
_FEWEST = 5
NEEDS = (("arrivals_per_second", "first_tokens_per_second"),)


def _with_queue(view: View, rate: Finding) -> Finding:
    """First tokens are what is served; what arrives is that and what the queue grew by."""
    waiting = fleet_series(view.case, "waiting_requests", view.affected or None)
    if rate.signal != "first_tokens_per_second" or waiting is None or rate.before <= 0 or rate.during <= 0:
        return rate
    values = waiting.within(view.spans.incident)
    values = values[np.isfinite(values)]
    if len(values) < _FEWEST:
        return rate
    grown = max(float(np.max(values)) - float(values[0]), 0.0) / view.spans.incident.seconds
    if grown < 0.05 * rate.during:
        return rate
    more = math.log1p(grown / rate.during) / SIGNALS[rate.signal].floor
    shifted = [bound + more if bound is not None else None for bound in (rate.low, rate.high)]
    return replace(
        rate, during=rate.during + grown, effect=rate.effect + more, low=shifted[0], high=shifted[1]
    )


def examine(view: View) -> Iterator[Output]:
    """Rate up, excess in the queue, everything else level, nobody alone responsible."""
    rate = rate_over_all(view)
    if rate is None:
        return
    rate = _with_queue(view, rate)
    evidence = rises("rate", rate, "request rate", smallest=_SMALLEST)
    yield evidence
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
    waiting = view.fleet.get("waiting_requests")
    if waiting is not None:
        yield rises("waiting", waiting, "waiting requests")
    length = view.finding("request_prompt_tokens", "prompt_tokens_per_request_mean")
    if length is not None:
        yield flat("lengths_flat", length, "prompt length", sign=1)
    top = view.finding("top_tenant_ratio")
    if top is not None:
        yield flat("tenants_even", top, f"share of tenant {top.labels.get('tenant', '?')}", sign=1)
    left, begun = view.finding("aborted_ratio"), view.finding("sessions_per_second")
    retried = begun.effect < 1 if begun is not None else queue is None or queue < 0.4
    if left is not None and left.effect >= 1 and retried:
        text = f"{quantity(left.during, 'ratio')} of requests were cut by their client: the extra arrivals are retries"
        yield stated(
            "not_retries", left.signal, False, text, before=left.before, during=left.during, unit="ratio"
        )
