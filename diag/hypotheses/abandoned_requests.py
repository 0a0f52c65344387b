"""Clients leave; the engine may go on generating for nobody.

vLLM V1 counts no departure: it shows as HTTP requests without a success, as first tokens without an
end, or in the clients' own records. Time to first token may even improve.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import Explained, Reach, rises, stated
from diag.detectors.view import View
from diag.detectors.whom import tenants_moved
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="abandoned_requests",
    title="Clients give up and leave; work is done for nobody",
    mechanism="Clients or proxies cut requests before they end and often retry; what was computed is lost, and without abort propagation the engine keeps generating.",
    signs=(
        "aborted requests up in gateway or client records",
        "HTTP requests answered, successes missing; first tokens without an end",
        "first tokens may come faster than before: retries hit the cache",
    ),
    rules_out=("aborts level", "every answered request also finishes"),
    look_alikes={"load_burst": "new sessions arrive, not retries", "engine_stall": "nothing finishes because nothing is generated"},
    mitigations=(
        Mitigation("Raise the client's or proxy's timeout above the answer time, and back off between retries.", True),
        Mitigation("Make sure that a disconnect reaches the engine (no response buffering in proxies).", True),
    ),
    next_check="Compare the time of the cuts with every timeout on the way: client, gateway, balancer.",
    chain=("aborted_ratio", "arrivals_per_second", "first_tokens_per_second", "finished_requests_per_second"),
)  # fmt: skip

NEEDS = (("aborted_ratio", "http_requests_per_second"),)


def examine(view: View) -> Iterator[Output]:
    """Departures in records, or the hole they leave in the engine's counters."""
    left = view.finding("aborted_ratio")
    if left is not None:
        evidence = rises("aborts", left, "share of requests cut by their client")
        yield evidence
        if evidence.degree >= 0.5:
            yield Explained(1 - left.before / left.during)
            if view.workload is not None:
                gone = view.workload.requests.aborted.astype(np.float64)
                yield Reach({"tenants": tenants_moved(view.workload, "aborted_ratio", gone, 1)})
    queue, begun = view.phases.share("queue"), view.finding("sessions_per_second")
    if begun is not None and begun.effect >= 1 and queue is not None and queue >= 0.4:
        text = "new sessions came first, and clients leave a long queue"
        yield stated(
            "unprovoked", begun.signal, False, text, before=begun.before, during=begun.during, unit=begun.unit
        )
    holes = [e for e in view.episodes if e.course.signal == "unfinished_ratio"]
    http, done = view.fleet.get("http_requests_per_second"), view.fleet.get("finished_requests_per_second")
    if holes:
        e = holes[0]
        text = f"{quantity(e.during, 'ratio')} of answered HTTP requests never finished in the engine (before: {quantity(e.before, 'ratio')})"
        yield stated(
            "hole",
            "http_requests_per_second",
            True,
            text,
            before=e.before,
            during=e.during,
            unit="ratio",
            onset=e.onset,
        )
    elif http is not None and done is not None and http.during > 0:
        share = max(0.0, 1 - done.during / http.during)
        yield stated(
            "hole",
            http.signal,
            share > 0.15,
            f"{quantity(share, 'ratio')} of answered HTTP requests did not finish in the engine",
            during=share,
            unit="ratio",
            degree=min(1.0, share),
            decisive=share < 0.10 and http.present_ratio >= 0.8 and left is None,
        )
