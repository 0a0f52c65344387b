"""Is the machine slower at equal work, or does it do more work?

A moved curve (slower at the same prompt length, longer between tokens at the same load) points to
hardware and host; moved lengths on the same curve point to the clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.cues import degree_of
from diag.detectors.standstill import standstills
from diag.detectors.view import View
from diag.errors import TooFewPoints
from diag.model import Floats
from diag.records.cohorts import Flags, Requests
from diag.stats.robust import theil_sen

__all__ = ["Demand", "Dose", "demand_of", "dose_of", "matched_ratio", "slow_steps", "slower", "slower_at"]

_MUTE = 0.3
_SLOWER = 1.1
_DEMAND: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("more requests", ("arrivals_per_second", "first_tokens_per_second")),
    ("longer prompts", ("request_prompt_tokens", "prompt_tokens_per_request_mean")),
    ("fewer cached tokens", ("request_computed_tokens", "computed_tokens_per_request_mean")),
    ("longer answers", ("request_output_tokens", "output_tokens_per_request_mean")),
)


@dataclass(frozen=True, slots=True)
class Demand:
    """What clients asked for that moved up, in words; ``known``: how many of the four were seen;
    ``degree`` (0 … 1): how surely the one that rose most did rise."""

    moved: tuple[str, ...]
    known: int
    degree: float


@dataclass(frozen=True, slots=True)
class Dose:
    """ln(first token) = a + ``exponent``·ln(prompt tokens) inside the incident: about 0 for queue and
    network, 1 for linear prefill, above 1 where attention or interference dominates.
    ``long_seconds``/``short_seconds``: medians of the longest and the shortest third of prompts."""

    exponent: float
    long_seconds: float
    short_seconds: float
    long_tokens: float
    short_tokens: float


def demand_of(view: View) -> Demand:
    """Which of rate, prompt length, uncached tokens and answer length moved up."""
    found = [(words, view.finding(*names)) for words, names in _DEMAND]
    moved = tuple(words for words, finding in found if finding is not None and finding.effect >= 1)
    most = max((finding.effect for _, finding in found if finding is not None), default=0.0)
    return Demand(moved, sum(finding is not None for _, finding in found), degree_of(most))


def dose_of(requests: Requests, inc: Flags) -> Dose | None:
    """Fit inside the incident; None when prompts differ too little (less than threefold) or are few."""
    keep = inc & np.isfinite(requests.ttft) & (requests.ttft > 0) & (requests.prompt > 0)
    tokens, seconds = requests.prompt[keep], requests.ttft[keep]
    if len(tokens) < 15:
        return None
    low, high = np.quantile(tokens, [1 / 3, 2 / 3])
    short, long = tokens <= low, tokens >= high
    short_tokens, long_tokens = float(np.median(tokens[short])), float(np.median(tokens[long]))
    if long_tokens < 3 * short_tokens:
        return None
    try:
        exponent, _ = theil_sen(np.log(tokens), np.log(seconds))
    except TooFewPoints:
        return None
    return Dose(
        exponent, float(np.median(seconds[long])), float(np.median(seconds[short])), long_tokens, short_tokens
    )


def matched_ratio(requests: Requests, base: Flags, inc: Flags, values: Floats) -> float | None:
    """Geometric mean over prompt-length octaves of median(during)/median(before); None when no
    octave holds five requests on either side."""
    known = np.isfinite(values) & (values > 0) & (requests.prompt > 0)
    octave = np.floor(np.log2(np.where(known, requests.prompt, 1.0)))
    logs: list[float] = []
    weights: list[int] = []
    for o in np.unique(octave[known & inc]):
        a, b = known & base & (octave == o), known & inc & (octave == o)
        if a.sum() >= 5 and b.sum() >= 5:
            logs.append(float(np.log(np.median(values[b]) / np.median(values[a]))))
            weights.append(int(b.sum()))
    return float(np.exp(np.average(logs, weights=weights))) if logs else None


def slower(view: View) -> tuple[float, str] | None:
    """How much longer the time between tokens became at the slow engines (all, when none stands out): the
    ratio, and where that was seen; engines that are fine would only thin it out. None where hardly any token
    came: a silence has no pace."""
    silent = sum(s.window.seconds for s in standstills(view)[:1])
    if silent > _MUTE * view.spans.incident.seconds:
        return None
    return slower_at(view, slow_steps(view))


def slow_steps(view: View) -> tuple[str, ...]:
    """Of the slow engines those whose own time between tokens rose; all of them where none's did. One that is
    down, or waits for something else, says nothing about the pace of the others."""
    rose = {
        f.labels.get("instance", "")
        for f in view.each.get("inter_token_seconds_mean", ())
        if f.effect >= 1 and f.during >= _SLOWER * f.before
    }
    return tuple(name for name in view.affected if name in rose) or view.affected


def slower_at(view: View, instances: tuple[str, ...]) -> tuple[float, str] | None:
    """Ratio during to before, from records at equal prompt length or from the engines' own clocks."""
    if view.workload is not None:
        r, work = view.workload.requests, view.workload
        chosen = _at(r, instances)
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(r.output > 1, (r.duration - r.ttft) / (r.output - 1), np.nan)
        ratio = matched_ratio(r, work.baseline & chosen, work.incident & chosen, each)
        if ratio is not None:
            return ratio, "request records at equal prompt length"
    found = [
        f
        for f in view.each.get("inter_token_seconds_mean", ())
        if not instances or f.labels.get("instance") in instances
    ]
    logs = [np.log(f.during / f.before) for f in found if f.before > 0 and f.during > 0]
    return (float(np.exp(np.mean(logs))), "the engine's inter-token time") if logs else None


def _at(requests: Requests, instances: tuple[str, ...]) -> Flags:
    """Which requests went to ``instances``; all where the records do not say."""
    hosts = {name.split(":")[0] for name in instances}
    codes = [c for c, name in enumerate(requests.instances) if name.split(":")[0] in hosts]
    if not instances or not codes:
        return np.ones(len(requests), dtype=bool)
    chosen: Flags = np.isin(requests.instance, codes)
    return chosen
