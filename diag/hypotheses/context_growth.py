"""Sessions resend their whole growing history.

Mechanism: a client sends the full dialogue with every question, so prefill work and KV per request
climb with the age of the session, faster than linearly where attention dominates.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import Explained, Named, Reach, flat, rises, stated
from diag.detectors.exposure import share_of_excess
from diag.detectors.lengths import climb_of, follows
from diag.detectors.service import dose_of
from diag.detectors.view import View
from diag.detectors.whom import tenants_moved, tenants_of
from diag.detectors.workload import Workload
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="context_growth",
    title="Sessions resend their whole growing history",
    mechanism=(
        "A client sends the full dialogue with every question. Prefill work and KV-cache use of each request climb "
        "with the session's age, faster than linearly where attention dominates; once the KV pool is full, "
        "preemption throws work away and it is computed again."
    ),
    signs=(
        "prompt tokens per request rise, and rise with the age of the session",
        "time to first token follows prompt length on one and the same curve",
        "old sessions are slow, fresh ones fast until the pool is full",
        "KV use climbs with them; then preemptions, or queueing behind long prefills",
    ),
    rules_out=(
        "prompt lengths stay level",
        "fresh sessions of equal length are equally slow from the start",
        "the request rate explains the excess",
    ),
    look_alikes={
        "load_burst": "the rate rises, lengths do not",
        "prefix_cache_off": "it makes every turn dearer; say both, growth is the root",
        "head_of_line_blocking": "single giants without history, not sessions that grow",
        "long_outputs": "answers grew first; histories are longer only because of them",
    },
    mitigations=(
        Mitigation("Ask the users of the slowest sessions to start a new conversation: it helps at once.", True),
        Mitigation("Trim in the chat backend: last N messages verbatim and a short summary of the rest.", True),
        Mitigation("Turn on prefix caching (--enable-prefix-caching), so that a turn computes only its new tail; needs a restart.", False),
        Mitigation("Cap --max-model-len only together with trimming: a cap alone turns long dialogues into errors.", False),
    ),
    next_check="List prompt tokens by session age from the backend's log for the three slowest sessions.",
    chain=(
        "session_growth_ratio", "request_prompt_tokens", "prompt_tokens_per_request_mean", "kv_cache_usage_ratio", "preemptions_per_second",
        "waiting_requests", "prefill_seconds_mean", "queue_seconds_mean", "ttft_seconds_mean",
    ),
    leads_to=("kv_cache_exhaustion", "prefix_cache_broken", "head_of_line_blocking", "sequence_limit", "prefill_interference"),
)  # fmt: skip

NEEDS = (("request_prompt_tokens", "prompt_tokens_per_request_mean"),)


def examine(view: View) -> Iterator[Output]:
    """Lengths, their growth within sessions, and whether waiting follows them."""
    length = view.finding("request_prompt_tokens", "prompt_tokens_per_request_mean")
    work = view.workload
    by_session = work is not None and work.growth is not None and bool(work.requests.sessions)
    if length is not None and not (by_session and work is not None and _grows(work) and length.effect < 1):
        # Where sessions are seen to grow, a mean blurred by the mix of old and fresh ones is no objection.
        yield rises("length", length, "prompt length per request")
    if by_session and work is not None:
        yield from _sessions(work)
    else:
        yield from _ramp(view)
        if work is not None:
            yield from _between(work)
            longer = tenants_moved(work, "request_prompt_tokens", work.requests.prompt, 1)
            yield Reach({"tenants": longer})
    outputs = view.finding("request_output_tokens", "output_tokens_per_request_mean")
    if outputs is not None:
        yield flat("answers_flat", outputs, "answer length", sign=1)
    arrivals = view.finding("arrivals_per_second", "first_tokens_per_second")
    if arrivals is not None:
        yield flat("rate_flat", arrivals, "request rate", sign=1)


def _grows(work: Workload) -> bool:
    return work.findings["session_growth_ratio"].effect >= 1


def _sessions(work: Workload) -> Iterator[Output]:
    growth = work.growth
    assert growth is not None
    share = work.findings["session_growth_ratio"]
    if growth.sessions:
        text = (
            f"{len(growth.sessions)} sessions resend their history: up to "
            f"{quantity(growth.longest_tokens, 'tokens')} a request, from {quantity(growth.first_tokens, 'tokens')} "
            f"when they began; {quantity(share.during, 'ratio')} of all prompt tokens are such growth"
        )
    else:
        text = f"no session's prompts grow beyond the usual {quantity(growth.usual_tokens, 'tokens')}"
    rising = _grows(work)
    yield stated(
        "growth", share.signal, rising, text, before=share.before, during=share.during, unit="ratio",
        degree=min(1.0, max(0.0, share.effect / 2)) if rising else 0.0,
    )  # fmt: skip
    giants = work.findings["giant_prompt_ratio"]
    if giants.effect >= 1 and giants.during > share.during:
        text = f"{quantity(giants.during, 'ratio')} of prompt tokens are single giants without history"
        yield stated(
            "giants", giants.signal, False, text, before=giants.before, during=giants.during, unit="ratio"
        )
    dose = dose_of(work.requests, work.incident)
    if dose is not None:
        follows = dose.exponent >= 0.3 and dose.long_seconds > 1.5 * dose.short_seconds
        text = (
            f"first token follows prompt length (exponent {dose.exponent:.1f}): "
            f"{quantity(dose.long_seconds, 'seconds')} at {quantity(dose.long_tokens, 'tokens')}, "
            f"{quantity(dose.short_seconds, 'seconds')} at {quantity(dose.short_tokens, 'tokens')}"
        )
        yield stated("dose", "client_ttft_seconds", follows, text, degree=1.0 if follows else 0.3)
    explained = share_of_excess(work.requests, growth.grown, work.baseline, work.incident)
    if explained is not None:
        yield Explained(explained)
    if growth.sessions and rising:
        longest = quantity(growth.longest_tokens, "tokens")
        yield Named(f"{len(growth.sessions)} sessions resend their whole growing history, up to {longest}")
        beyond = np.maximum(np.nan_to_num(work.requests.prompt) - growth.usual_tokens, 0.0) * growth.grown
        yield Reach({"sessions": growth.sessions[:20], "tenants": tenants_of(work, beyond)})


def _between(work: Workload) -> Iterator[Output]:
    """Without sessions: who grows passes every length on the way, giants have nothing between them and the rest."""
    growth = work.growth
    if growth is None:
        return
    prompt = np.nan_to_num(work.requests.prompt)
    longest = prompt[growth.giant & work.incident]
    if len(longest) < 3:
        return
    middle = (prompt > growth.usual_tokens) & (prompt < 0.5 * float(np.median(longest)))
    usual = float(middle[work.baseline].mean())
    added = float(middle[work.incident].mean()) - usual
    if added < 0.5 * float(growth.giant[work.incident].mean()):
        text = f"{len(longest)} requests are giants, and hardly any is between them and the usual {quantity(growth.usual_tokens, 'tokens')}: nothing grew to that"
        yield stated("giants", "giant_prompt_ratio", False, text)


def _ramp(view: View) -> Iterator[Output]:
    """Without sessions: did lengths climb inside the incident, as growth does and giants do not?"""
    ramp = climb_of(view, "prompt_tokens_per_request_p99") or climb_of(view, "prompt_tokens_per_request_mean")
    if ramp is not None:
        what = "the longest prompts" if ramp.signal.endswith("p99") else "prompts"
        numbers = f"{quantity(ramp.early, 'tokens')} in its first third, {quantity(ramp.late, 'tokens')} in its last"
        verb = "get longer" if ramp.climbs else "do not get longer"
        text = f"{what} {verb} through the incident: {numbers}"
        yield stated(
            "ramp", ramp.signal, ramp.climbs, text, before=ramp.early, during=ramp.late, unit="tokens"
        )
    together = follows(view, "prompt_tokens_per_request_p99", "ttft_seconds_p95")
    if together is not None:
        r, p = together
        text = f"the slowest first tokens follow the longest prompts over time (r {r:.2f}, p {p:.2g})"
        yield stated(
            "dose",
            "ttft_seconds_p95",
            r > 0.4 and p < 0.05,
            text,
            degree=1.0 if r > 0.4 and p < 0.05 else 0.4,
        )
    usage = view.fleet.get("kv_cache_usage_ratio")
    if usage is not None and ramp is not None:
        yield rises("kv_fills", usage, "KV cache in use")
