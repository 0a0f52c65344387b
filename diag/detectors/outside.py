"""How much of the wait for a first token passes outside the engine: on the way, at a gateway, in a client.

Client and engine must speak of the same tokens. Both means are therefore taken over first tokens that *came*
in a stretch, and over all engines: taken by arrival, requests that still wait when the stretch ends would
count on the client's side alone, and a full engine would look like a slow network."""

from __future__ import annotations

import numpy as np

from diag.detectors.findings import Spans, fleet_series, judge_series
from diag.model import Case, Finding, Floats, Window
from diag.records.cohorts import Requests

__all__ = ["outside_engine"]

_FEWEST = 5


def outside_engine(case: Case, requests: Requests, spans: Spans) -> tuple[float, float] | None:
    """Extra seconds of a mean first token (outside, inside the engine) since the onset; None where one side
    is not known."""
    engine = _engine(case, spans)
    if engine is None:
        return None
    came = requests.ts + requests.ttft
    before, during = (_mean_of(requests.ttft, came, span) for span in (spans.baseline, spans.incident))
    if before is None or during is None:
        return None
    inside = engine.during - engine.before
    return during - before - inside, inside


def _engine(case: Case, spans: Spans) -> Finding | None:
    merged = fleet_series(case, "ttft_seconds_mean")
    weights = fleet_series(case, "first_tokens_per_second")
    if merged is None:
        return None
    return judge_series(merged, spans, weights.values if weights is not None else None)


def _mean_of(seconds: Floats, came: Floats, span: Window) -> float | None:
    known = np.isfinite(seconds) & (came >= span.start) & (came <= span.end)
    return float(np.mean(seconds[known])) if known.sum() >= _FEWEST else None
