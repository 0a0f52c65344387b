"""The client is itself the limit: it waits for its own slots, threads or event loop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.clients import crowding_of_hit, hit_clients, requests_of_hit
from diag.detectors.cues import Explained, Reach, degree_of, falls, flat, stated
from diag.detectors.in_flight import InFlight, in_flight, under_way
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="client_limit",
    title="A client is its own limit: its requests wait before they are sent",
    mechanism="A client or load generator sends no more than its pool, threads or event loop allow; what it measures holds its own queue, while the server has room and idles between requests.",
    signs=("one client's wait grows outside the engine", "requests at the engines do not rise, nothing queues there", "other clients are as fast as before", "the gateway's own times are as before"),
    rules_out=("the engine's own time carries the excess", "the engines hold more than before"),
    look_alikes={"network_latency": "all clients on that path wait", "proxy_limit": "all clients wait, failures at a round time", "load_burst": "the engines queue"},
    mitigations=(
        Mitigation("Raise the client's concurrency (connection pool, semaphore, workers) or add client processes.", True),
        Mitigation("Measure from the time a request was due, not from when it was sent.", True),
    ),
    next_check="The client's count of open requests against its pool's size, and its CPU (one core at 100 %: event loop).",
    chain=("running_requests", "client_gap_seconds", "client_ttft_seconds"),
)  # fmt: skip

NEEDS = (("running_requests",), ("client_ttft_seconds", "client_duration_seconds"))


def examine(view: View) -> Iterator[Output]:
    """Clients hold back work while the engines have room; and only some clients do."""
    flow = in_flight(view)
    if flow is not None:
        yield from _held_back(flow, _usual(view), view.finding("client_gap_seconds") is not None)
    share = view.phases.share("gap")
    if share is not None:
        text = f"{quantity(share, 'ratio')} of the extra first-token time passes outside the engine"
        yield stated("outside", "client_gap_seconds", share >= 0.5, text, degree=share, decisive=share < 0.2)
        if share >= 0.5:
            yield Explained(share)
    hit = hit_clients(view)
    if hit is not None and hit.known >= 2:
        alone = len(hit.names) == 1 and hit.share >= 0.7
        text = f"{len(hit.names)} of {hit.known} clients wait longer" + (f": {hit.names[0]}" if alone else "")
        yield stated("one_client", "top_tenant_ratio", alone, text, degree=1.0 if alone else 0.0)
        if alone:
            yield Reach({"tenants": hit.names})
    rank = crowding_of_hit(view)
    if rank is not None:
        text = (
            f"who came while more of its requests were under way waited longer (rank correlation {rank:.2f})"
        )
        yield stated("crowded", "client_ttft_seconds", rank >= 0.25, text, degree=degree_of(rank / 0.25))
    own = view.fleet.get("ttft_seconds_mean")
    if own is not None:
        yield flat("engine_flat", own, "the engine's own first-token time", sign=1)
    use = view.fleet.get("gpu_utilization_ratio")
    if use is not None and use.effect <= -1:
        yield falls("idle_between", use, "GPU utilisation")
    waited = view.finding("gateway_wait_seconds")
    if waited is not None:
        yield flat("gateway_flat", waited, "time in the gateway beyond its upstream's", sign=1)


def _usual(view: View) -> float:
    """How many requests the clients that now wait had under way before, on average."""
    assert view.workload is not None
    chosen, span = requests_of_hit(view), view.workload.quiet
    moments = np.linspace(span.start, span.end, 200)
    return float(under_way(view.workload.requests, moments, chosen).mean())


def _held_back(flow: InFlight, usual: float, measured: bool) -> Iterator[Output]:
    """``measured``: each request tells how long it was outside; else gauges and records, which are of different
    moments, must differ by more than that."""
    noise = 0.25 if measured else min(2.0, 0.5 + flow.engines_during)
    more = flow.outside_during - flow.outside_before
    room = flow.waiting < max(0.5, 0.05 * max(flow.engines_during, 1.0))
    text = (
        f"{quantity(flow.outside_during, 'requests')} wait outside the engines (before: "
        f"{quantity(flow.outside_before, 'requests')}), which hold {flow.engines_during:.1f} "
        f"(before: {flow.engines_before:.1f})"
    )
    degree = degree_of(0.5 + more / max(0.5 * usual, noise))
    true = degree >= 0.5 and room
    yield stated(
        "held_back", "running_requests", true, text, degree=degree if room else min(degree, 0.2),
        onset=flow.onset, decisive=more < 0.25 * noise,
    )  # fmt: skip
