"""Answers got longer: decode slots and KV stay taken."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import Explained, Reach, flat, rises, stated
from diag.detectors.view import View
from diag.detectors.whom import tenants_moved
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation

CARD = Card(
    id="long_outputs",
    title="Answers got much longer",
    mechanism="Longer answers (reasoning, runaway generation, a missing stop) hold their slot and KV for longer; with the same arrivals more requests run at once until slots or blocks run out.",
    signs=("output tokens per request up", "running requests and answer time up, time between tokens about level", "first token suffers only once slots are full"),
    rules_out=("answer lengths level",),
    look_alikes={"kv_cache_exhaustion": "its consequence", "sequence_limit": "its consequence, once every slot is taken", "context_growth": "histories are longer because answers are"},
    mitigations=(
        Mitigation("Set or lower max_tokens in the client; check stop sequences and the reasoning switch of the last release.", True),
        Mitigation("Raise --max-num-seqs while KV use is low.", False),
    ),
    next_check="Look at finish reasons: many `length` where there was `stop` means runaway answers.",
    chain=("request_output_tokens", "output_tokens_per_request_mean", "running_requests", "kv_cache_usage_ratio", "waiting_requests", "e2e_seconds_mean", "ttft_seconds_mean"),
    leads_to=("kv_cache_exhaustion", "sequence_limit", "context_growth"),
)  # fmt: skip

NEEDS = (("request_output_tokens", "output_tokens_per_request_mean"),)


def examine(view: View) -> Iterator[Output]:
    """Longer answers, more running, arrivals level."""
    outputs = view.finding("request_output_tokens", "output_tokens_per_request_mean")
    if outputs is None:
        return
    evidence = rises("outputs", outputs, "answer length per request")
    yield evidence
    if view.workload is not None and evidence.degree >= 0.5:
        output = view.workload.requests.output
        yield Reach({"tenants": tenants_moved(view.workload, "request_output_tokens", output, 1)})
    running = view.fleet.get("running_requests")
    if running is not None:
        yield rises("running", running, "running requests")
    rate = view.finding("arrivals_per_second", "first_tokens_per_second")
    if rate is not None:
        yield flat("rate_flat", rate, "request rate", sign=1)
    duration = view.finding("client_duration_seconds", "e2e_seconds_mean")
    if duration is not None and outputs.before > 0 and duration.before > 0:
        yield rises("duration", duration, "answer time")
        grown = min(outputs.during / outputs.before, duration.during / duration.before)
        if evidence.degree >= 0.5:
            # Answer time is about tokens × time per token: the part that length alone explains.
            alone = (grown - 1) / max(duration.during / duration.before - 1, 1e-9)
            full = any(pin.binds for pin in view.pins)
            # Once every slot is taken the queue is their doing as well.
            queue = view.phases.share("queue") or 0.0
            yield Explained(min(1.0, max(alone, queue if full else 0.0)))
    itl = view.fleet.get("inter_token_seconds_mean")
    if itl is not None and outputs.before > 0:
        slower = itl.during / max(itl.before, 1e-9)
        # A fuller batch takes longer steps: that is the longer answers' own doing.
        fuller = running.during / running.before if running is not None and running.before > 0 else 1.0
        text = f"time between tokens grew ×{slower:.1f} while answers grew ×{outputs.during / outputs.before:.1f}"
        yield stated(
            "tokens_steady",
            itl.signal,
            slower < max(outputs.during / outputs.before, fuller, 1.5),
            text,
            before=itl.before,
            during=itl.during,
            unit="seconds",
        )
