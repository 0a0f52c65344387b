"""Long prefills share steps with decodes: answers that flow get gaps.

A step that computes thousands of prompt tokens takes long, and every stream in the batch waits for it. The
median time between tokens may stay; the tail is what goes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.batches import equal_ratio
from diag.detectors.cues import degree_of, rises, stated
from diag.detectors.holdups import held_up_by
from diag.detectors.new_work import extra_of, payers_of
from diag.detectors.pool import number_of_fact
from diag.detectors.rhythm import rhythm_of
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="prefill_interference",
    title="Long prefills stall the answers that share their steps",
    mechanism="A step carries decodes and a chunk of prefill; with chunking off or a large token budget the chunk makes the step long, and every stream in the batch waits for it.",
    signs=(
        "the tail of the time between tokens rises, the median less",
        "it rises when prompt tokens per step are high",
        "chunked prefill off, or max_num_batched_tokens large",
    ),
    rules_out=("the tail of the time between tokens is flat", "it is as high without prefills"),
    look_alikes={
        "host_cpu_starvation": "steps are long without prefills, too",
        "thermal_throttle": "every step is longer",
        "head_of_line_blocking": "those who wait for their first token suffer, not those who stream",
        "grammar_stall": "gaps go with structured requests",
    },
    mitigations=(
        Mitigation("Send long prompts to a replica of their own, or spread them over time at the gateway.", True),
        Mitigation("Turn chunked prefill on and lower --max-num-batched-tokens (2,048 keeps a step short); first tokens of long prompts come later.", False),
        Mitigation("Separate prefill from decode (disaggregated serving).", False),
    ),
    next_check="Compare the 99th percentile of the time between tokens at minutes with many and with few prompt tokens.",
    chain=("prompt_tokens_per_request_p99", "computed_prompt_tokens_per_second", "step_tokens_mean", "inter_token_seconds_p99", "inter_token_seconds_mean", "e2e_seconds_mean"),
)  # fmt: skip

NEEDS = (
    ("inter_token_seconds_p99", "inter_token_seconds_mean"),
    ("computed_prompt_tokens_per_second", "prompt_tokens_per_second", "step_tokens_mean"),
)
_DOSES = ("computed_prompt_tokens_per_second", "prompt_tokens_per_second", "step_tokens_mean")
_TAILS = ("inter_token_seconds_p99", "inter_token_seconds_mean")
_LARGE_TOKENS, _SMALL_TOKENS = 8192, 2048


def examine(view: View) -> Iterator[Output]:
    """The tail, whether it follows prefill, and whether the curve or the dose moved."""
    tail = view.finding(*_TAILS)
    if tail is None:
        return
    yield rises(
        "tail",
        tail,
        "99th percentile of the time between tokens"
        if tail.signal.endswith("p99")
        else "time between tokens",
    )
    dose = next((name for name in _DOSES if name in view.fleet), None)
    if dose is None:
        return
    seen = rhythm_of(view, dose, *_TAILS)
    if seen is not None:
        text = f"gaps {'follow' if seen.keeps_time else 'do not follow'} prefill (correlation {seen.r:.2f}): {quantity(seen.low_seconds, 'seconds')} with few prompt tokens, {quantity(seen.high_seconds, 'seconds')} with many"
        # Any service's steps are a little longer with prefill in them; the mechanism needs much.
        ratio = seen.high_seconds / max(seen.low_seconds, 1e-9)
        degree = float(np.clip(0.35 + 0.6 * (ratio - 1.0), 0.0, 1.0)) if seen.keeps_time else 0.1
        yield stated(
            "in_step",
            tail.signal,
            degree >= 0.5,
            text,
            before=seen.low_seconds,
            during=seen.high_seconds,
            unit="seconds",
            degree=degree,
            onset=tail.onset,
        )
    yield from _dose(view)
    yield from _moved(view, dose)
    yield from _curve(view, tail.signal, dose)
    yield from _budget(view)
    yield from _streams(view)
    yield from _fresh(view)
    yield from _each(view)
    yield from _payers(view)


def _dose(view: View) -> Iterator[Output]:
    """What a thousand prompt tokens that begin cost the answers beside them, and how much of the time that is."""
    work = view.workload
    if work is None:
        return
    requests = work.requests
    computed = (
        np.where(np.isfinite(requests.cached), requests.prompt - requests.cached, requests.prompt) / 1000
    )
    if not np.isfinite(computed).any():
        return
    found = held_up_by(requests, work.incident, computed)
    before = held_up_by(requests, work.baseline, computed)
    if found is None:
        return
    now = found[0]
    usual = before[0].share if before is not None else 0.0
    true = now.sure and now.share >= 0.15 and now.share > 1.5 * usual
    text = (
        f"prefills beside them take {quantity(now.share, 'ratio')} of the answers' time (before: {quantity(usual, 'ratio')}), "
        f"{quantity(max(now.seconds, 0.0), 'seconds')} for a thousand prompt tokens"
    )
    yield stated(
        "dose",
        "computed_prompt_tokens_per_second",
        true,
        text,
        before=usual,
        during=now.share,
        unit="ratio",
        degree=min(1.0, 0.5 + now.share) if true else 0.3 if now.share > 1.2 * usual else 0.0,
    )


def _moved(view: View, dose: str) -> Iterator[Output]:
    """More prompt tokens, or longer prompts: what changed. Tokens per step do not tell: slow steps gather more."""
    names = [n for n in (dose, "prompt_tokens_per_request_p99") if n != "step_tokens_mean"]
    found = [f for n in names if (f := view.fleet.get(n)) is not None]
    most = max(found, key=lambda f: f.effect, default=None)
    if most is not None:
        lengths = most.signal == "prompt_tokens_per_request_p99"
        yield rises(
            "prefill", most, "prompt length's 99th percentile" if lengths else "prompt tokens per second"
        )


def _curve(view: View, tail: str, dose: str) -> Iterator[Output]:
    """At equal prefill a machine that is not slower has the gaps it had."""
    ratios = [
        r
        for where in view.affected or sorted(view.engines)
        if (r := equal_ratio(view, where, tail, dose)) is not None
    ]
    if ratios:
        ratio = max(ratios)
        yield stated(
            "curve_still",
            tail,
            ratio < 1.3,
            f"at equal prefill the gaps are ×{ratio:.2f} what they were",
            degree=0.9 if ratio < 1.3 else max(0.0, 0.5 - (ratio - 1.3)),
        )


def _budget(view: View) -> Iterator[Output]:
    if view.fact("chunked_prefill") == "off":
        yield stated("budget", "step_tokens_mean", True, "chunked prefill is off: a step holds whole prompts")
        return
    tokens = number_of_fact(view, "max_num_batched_tokens")
    if tokens is not None and (tokens >= _LARGE_TOKENS or tokens <= _SMALL_TOKENS):
        large = tokens >= _LARGE_TOKENS
        yield stated(
            "budget",
            "step_tokens_mean",
            large,
            f"a step holds up to {tokens:.0f} tokens",
            degree=0.8 if large else 0.2,
        )


def _streams(view: View) -> Iterator[Output]:
    """Who pays: answers that flow, or those who wait for their first token."""
    wait = view.phases.total
    decode, tokens = (
        view.fleet.get("decode_seconds_mean"),
        view.finding("request_output_tokens", "output_tokens_per_request_mean"),
    )
    pace = view.fleet.get("inter_token_seconds_mean")
    if wait is None or pace is None or tokens is None:
        return
    longer = (pace.during - pace.before) * max(tokens.before, 1.0)
    if decode is not None:
        longer = max(longer, decode.during - decode.before)
    total = max(wait, 0.0) + max(longer, 0.0)
    if total < 0.1:
        return
    share = max(longer, 0.0) / total
    text = f"{quantity(share, 'ratio')} of what an answer takes longer comes after its first token"
    yield stated(
        "streams", pace.signal, share >= 0.6, text, degree=float(np.clip(1.25 * share - 0.25, 0.0, 1.0))
    )


def _fresh(view: View) -> Iterator[Output]:
    """Where the prefill comes from: prompts that nobody sent before, or the old ones computed again or grown."""
    work = view.workload
    grown = work.findings.get("session_growth_ratio") if work is not None else None
    if grown is not None and grown.effect >= 1:
        text = f"{quantity(grown.during, 'ratio')} of prompt tokens are history that sessions resend"
        yield stated("fresh", grown.signal, False, text)
        return
    extra = extra_of(view)
    if extra is None:
        return
    share = quantity(extra.anew, "ratio")
    yield stated(
        "fresh",
        "computed_prompt_tokens_per_second",
        extra.anew < 0.5,
        f"{share} of the added prefill is what caches used to hold: old prompts are computed anew"
        if extra.anew >= 0.5
        else f"the added prefill is new work: caches hold what they held ({share} of it was lost there)",
        before=extra.before,
        during=extra.during,
        unit="tokens per second",
        degree=1 - extra.anew,
    )


def _each(view: View) -> Iterator[Output]:
    """More requests of the usual kind are a higher rate; this needs ones that carry more."""
    names = (
        "request_computed_tokens", "computed_tokens_per_request_mean",
        "request_prompt_tokens", "prompt_tokens_per_request_mean", "prompt_tokens_per_request_p99",
    )  # fmt: skip
    found = [f for name in names if (f := view.finding(name)) is not None]
    rate = view.finding("arrivals_per_second", "first_tokens_per_second")
    if not found or rate is None:
        return
    most = max(found, key=lambda f: f.effect)
    if most.effect >= 1 or rate.effect >= 1:
        yield stated(
            "each",
            most.signal,
            most.effect >= 1,
            "single requests need more prefill than before"
            if most.effect >= 1
            else "there are more requests, but none needs more prefill than before",
            before=most.before,
            during=most.during,
            unit=most.unit,
            degree=degree_of(most.effect),
        )


def _payers(view: View) -> Iterator[Output]:
    """Computed in one step a prompt stops the answers beside it for as long as itself; in many, hardly."""
    seen = payers_of(view)
    if seen is None:
        return
    text = f"answers stand still for {quantity(seen.gap_seconds, 'seconds')} more, first tokens come up to {quantity(max(seen.wait_seconds, 0.0), 'seconds')} later"
    yield stated("payers", "inter_token_seconds_p99", seen.ratio < 1, text, degree=1 - seen.waiting)
