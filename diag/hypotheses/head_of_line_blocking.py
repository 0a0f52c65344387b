"""A giant request holds the step, and everyone behind it waits.

Engine gauges stand still meanwhile: statistics are published between steps, so waiting and queue
time can stay zero while clients wait for seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import Explained, degree_of, flat, rises, stated
from diag.detectors.exposure import Exposure, exposure_of
from diag.detectors.lengths import climb_of
from diag.detectors.new_work import Costly, costly_of, extra_of, payers_of
from diag.detectors.view import View
from diag.detectors.workload import Workload
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="head_of_line_blocking",
    title="Giant prompts block the short requests behind them",
    mechanism="Requests are served first come, first served: while one giant prompt is computed, those behind it wait for the rest of it.",
    signs=(
        "short requests that arrive during a giant's prefill wait, others do not",
        "tails of prompt length and first token rise, medians do not",
        "waiting and queue time may stay 0: gauges stand still between scrapes",
    ),
    rules_out=("no giants", "waits are equal with and without a giant in progress"),
    look_alikes={"load_burst": "the rate rose and everyone queues", "context_growth": "long prompts are the history of sessions that grow", "oversized_request": "the giant never runs: it cannot fit", "prefill_interference": "those who stream suffer, more than those who wait for a first token"},
    mitigations=(
        Mitigation("Send prompts above a length limit to a replica of their own, or reject them at the gateway.", True),
        Mitigation("Turn chunked prefill on with a --long-prefill-token-threshold, so that short requests slip in between.", False),
        Mitigation("Schedule by priority (--scheduling-policy priority) and mark batch prompts as low.", False),
    ),
    next_check="List requests far above the usual prompt length with arrival time and first-token time.",
    chain=("giant_prompt_ratio", "prompt_tokens_per_request_p99", "prefill_seconds_mean", "ttft_seconds_p95"),
)  # fmt: skip

NEEDS = (("giant_prompt_ratio", "prompt_tokens_per_request_p99"),)


def examine(view: View) -> Iterator[Output]:
    """Giants, the contrast between requests behind them and others, and an untroubled median."""
    work = view.workload
    if work is not None and work.growth is not None:
        yield from _records(work, work.growth.usual_tokens)
    else:
        yield from _metrics(view)
    yield from _payers(view)
    usage = view.fleet.get("kv_cache_usage_ratio")
    if usage is not None:
        most = max(usage.peak, usage.during)
        yield stated(
            "kv_free",
            usage.signal,
            most < 0.9,
            f"KV cache at most {quantity(most, 'ratio')} full",
            during=most,
            unit="ratio",
        )
    rate = view.finding("arrivals_per_second", "first_tokens_per_second")
    if rate is not None:
        yield flat("rate_flat", rate, "request rate", sign=1)


def _records(work: Workload, usual_tokens: float) -> Iterator[Output]:
    costly = costly_of(work)
    if costly is None:
        return
    found = costly.flags & work.incident
    count = int(found.sum())
    longest = float(np.nanmax(work.requests.prompt[found])) if count else 0.0
    usual = quantity(costly.usual_tokens, "tokens")
    text = (
        f"{count} giant prompts of up to {quantity(longest, 'tokens')}; a usual one needs up to {usual} computed"
        if count
        else f"no prompt that needs far more computing than the usual {usual} and is not a session's history"
    )
    seen = exposure_of(work.requests, costly.flags, work.baseline, work.incident) if count else None
    held = _held(costly, count, seen, int((costly.flags & work.baseline).sum()), work)
    yield stated(
        "giants",
        "giant_prompt_ratio",
        held >= 0.5,
        text,
        before=costly.before,
        during=costly.during,
        unit="ratio",
        degree=held,
        decisive=count == 0 and _all_short(work, usual_tokens),
    )
    if seen is not None:
        ratio = seen.behind_seconds / max(seen.free_seconds, 1e-6)
        text = f"{seen.behind} short requests behind a giant waited {quantity(seen.behind_seconds, 'seconds')}, {seen.free} others {quantity(seen.free_seconds, 'seconds')} (medians)"
        yield stated(
            "behind",
            "client_ttft_seconds",
            ratio >= 1.75,
            text,
            before=seen.free_seconds,
            during=seen.behind_seconds,
            unit="seconds",
            degree=min(1.0, max(0.0, (ratio - 1) / 1.5)),
        )
        if held >= 0.5:
            yield Explained(seen.excess_share)


def _held(costly: Costly, count: int, seen: Exposure | None, usual: int, work: Workload) -> float:
    """Degree (0 … 1) to which there are giants that matter: a tenth of the tokens is enough, or fewer where
    they came with the trouble and most of it is behind them."""
    if count < 3:
        return 0.0
    share = (costly.during - costly.before) / 0.2
    held = min(degree_of(share / 0.5), 0.7 + 0.25 * max(share, 0.0))
    rates = count / max(int(work.incident.sum()), 1), usual / max(int(work.baseline.sum()), 1)
    if seen is not None and rates[0] > 2 * rates[1] and seen.excess_share >= 0.5:
        held = max(held, 0.25 + 0.5 * seen.excess_share)
    return held


def _payers(view: View) -> Iterator[Output]:
    """A giant that takes many steps makes small gaps in answers and long waits behind it."""
    seen = payers_of(view)
    if seen is None:
        return
    text = f"first tokens come up to {quantity(max(seen.wait_seconds, 0.0), 'seconds')} later, answers stand still for {quantity(seen.gap_seconds, 'seconds')} more"
    yield stated("payers", "ttft_seconds_p95", seen.ratio >= 1, text, degree=seen.waiting)


def _all_short(work: Workload, usual_tokens: float) -> bool:
    """Whether nothing twice the usual length was asked; a length that is not known may be a giant's."""
    prompts = work.requests.prompt[work.incident]
    return bool(np.isfinite(prompts).all()) and float(np.max(prompts, initial=0.0)) < 2 * usual_tokens


def _metrics(view: View) -> Iterator[Output]:
    tail = view.fleet.get("prompt_tokens_per_request_p99")
    each = _each_more(view)
    main = max((f for f in (tail, each) if f is not None), key=lambda f: f.effect, default=None)
    if main is not None:
        what = "prompt length's 99th percentile" if main is tail else "prompt tokens computed for a request"
        yield rises("giants", main, what)
    median = view.fleet.get("prompt_tokens_per_request_p50")
    if median is not None and main is not None and main.effect >= 1:
        yield flat("median_flat", median, "median prompt length", sign=1)
    climb = climb_of(view, "prompt_tokens_per_request_p99")
    if climb is not None:
        numbers = (
            f"{quantity(climb.early, 'tokens')} early, {quantity(climb.late, 'tokens')} late in the incident"
        )
        text = f"the longest prompts {'climb, as growing sessions do' if climb.climbs else 'are giants from the start'}: {numbers}"
        yield stated(
            "jump", climb.signal, not climb.climbs, text, before=climb.early, during=climb.late, unit="tokens"
        )
    queue = view.phases.share("queue")
    if queue is not None and tail is not None and tail.effect >= 1:
        yield stated(
            "not_queue",
            "queue_seconds_mean",
            queue < 0.4,
            f"{quantity(queue, 'ratio')} of the extra wait is queue time",
            degree=1 - queue,
        )


def _each_more(view: View) -> Finding | None:
    """What is computed for a request, where it is new work: buckets are too wide to show every giant."""
    found = view.fleet.get("computed_tokens_per_request_mean")
    extra = extra_of(view)
    return found if found is not None and extra is not None and extra.anew < 0.5 else None
