"""What the clients asked for, and what they got, from per-request records.

Every function compares the baseline's requests with the incident's. ``Workload`` keeps the results
by the names of the request-scope signals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from diag.detectors.findings import judge_values, onset_of
from diag.detectors.symptoms import Course
from diag.model import Finding, Floats, Window
from diag.records.cohorts import Codes, Flags, Requests, bins
from diag.signals import SIGNALS

__all__ = ["Growth", "Workload", "columns_of", "growth_of", "request_courses", "workload_of"]

_GIANT = 3.5  # times the usual length, which three quarters of prompts do not reach
_FEWEST = 12  # requests on either side of a comparison
_PAUSES = 3.0  # times the longest pause between requests, and
_DUE = 0.05  # of the baseline: a first request later than both is where the records begin


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """Which long prompts are resent history, and which came out of nowhere.

    ``usual_tokens``: three quarters of baseline prompts are shorter, a quarter added for slack.
    ``grown``, ``giant``: flags over all requests. ``sessions`` (and their ``codes``): those that grew,
    longest first.
    """

    usual_tokens: float
    grown: Flags
    giant: Flags
    codes: Codes
    sessions: tuple[str, ...]
    longest_tokens: float
    first_tokens: float


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Findings from records by signal name; flags of the two windows; growth where sessions are known.
    ``quiet``: the baseline from where records begin; what was before is unknown, not zero."""

    requests: Requests
    baseline: Flags
    incident: Flags
    quiet: Window
    findings: Mapping[str, Finding] = field(default_factory=dict)
    growth: Growth | None = None


def request_courses(requests: Requests, window: Window, step_seconds: float) -> Iterator[Course]:
    """Symptom courses of all requests together and of each instance, in bins of about eight."""
    edges = bins(requests, window, step_seconds)
    everyone = np.ones(len(requests), dtype=bool)
    yield from _courses_of(requests, everyone, edges, {"cohort": "all requests"})
    if len(requests.instances) > 1:
        for code, name in enumerate(requests.instances):
            yield from _courses_of(requests, requests.instance == code, edges, {"instance": name})


def _courses_of(
    requests: Requests, chosen: Flags, edges: Floats, scope: Mapping[str, str]
) -> Iterator[Course]:
    ts = requests.ts[chosen]
    centres = (edges[:-1] + edges[1:]) / 2
    if len(ts) < _FEWEST:
        return
    waited, duration = requests.waited[chosen], requests.duration[chosen]
    yield Course("ttft_seconds_p50", scope, "seconds", centres, _binned(ts, waited, edges, 0.5), 1)
    yield Course("ttft_seconds_p95", scope, "seconds", centres, _binned(ts, waited, edges, 0.95), 1)
    # A gateway's log knows no first token; what an answer took beyond its upstream's time was waiting.
    held = np.maximum(duration - requests.upstream[chosen], 0.0)
    yield Course("gateway_wait_seconds_p95", scope, "seconds", centres, _binned(ts, held, edges, 0.95), 1)
    yield Course("gateway_wait_seconds_mean", scope, "seconds", centres, _binned(ts, held, edges, None), 1)
    # What befalls a request in mid-answer counts when it shows, not when the request was sent.
    ended = ts + np.nan_to_num(duration)
    order = np.argsort(ended, kind="stable")
    ended = ended[order]
    yield Course(
        "e2e_seconds_mean", scope, "seconds", centres, _binned(ended, duration[order], edges, None), 1
    )
    for name, flags in (("aborted_ratio", requests.aborted), ("error_ratio", requests.failed)):
        values = _binned(ended, flags[chosen][order].astype(np.float64), edges, None)
        yield Course(name, scope, "ratio", centres, values, 1)


def _binned(ts: Floats, values: Floats, edges: Floats, q: float | None) -> Floats:
    """Quantile (or mean) of ``values`` in each bin; NaN for bins with fewer than three."""
    out = np.full(len(edges) - 1, np.nan)
    keep = np.isfinite(values)
    values = values[keep]
    bounds = np.searchsorted(ts[keep], edges, side="left")
    for b in range(len(out)):
        inside = values[bounds[b] : bounds[b + 1]]
        if len(inside) >= 3:
            out[b] = np.mean(inside) if q is None else np.quantile(inside, q)
    return out


def columns_of(requests: Requests) -> dict[str, Floats]:
    """What single requests tell, by signal: one value a request, NaN unknown."""
    return {
        "request_prompt_tokens": requests.prompt,
        "request_cached_tokens": requests.cached,
        "request_computed_tokens": requests.prompt - requests.cached,
        "request_output_tokens": requests.output,
        "client_ttft_seconds": requests.waited,
        "client_duration_seconds": requests.duration,
        "client_gap_seconds": requests.ttft - requests.engine_ttft,
        "gateway_connect_seconds": requests.connect,
        "gateway_wait_seconds": requests.duration - requests.upstream,
        "aborted_ratio": requests.aborted.astype(np.float64),
        "error_ratio": requests.failed.astype(np.float64),
        "structured_ratio": requests.structured,
        "cache_reuse_ratio": _reuse(requests),
        "replica_switch_ratio": _switched(requests),
    }


def workload_of(requests: Requests, baseline: Window, incident: Window) -> Workload | None:
    """Compare the two windows' requests; None when either has fewer than twelve."""
    base, inc = requests.within(baseline), requests.within(incident)
    if base.sum() < _FEWEST or inc.sum() < _FEWEST:
        return None
    growth = growth_of(requests, base, inc)
    baseline = _recorded(requests.ts[base], baseline)
    found = dict(_rates(requests, baseline, incident))
    edges = bins(requests, Window(baseline.start, incident.end), 1.0)
    for name, values in columns_of(requests).items():
        finding = judge_values(SIGNALS[name], values[base], values[inc], labels={"source": "request records"})
        if finding is not None and np.isfinite(values[base]).sum() >= _FEWEST:
            course = _binned(requests.ts, values, edges, None)
            onset = onset_of(SIGNALS[name], edges[:-1], course, baseline, finding, 1)
            found[name] = replace(finding, onset=onset)
    if growth is not None:
        for name, flags in (("session_growth_ratio", growth.grown), ("giant_prompt_ratio", growth.giant)):
            found[name] = _token_share(requests, name, flags, growth.usual_tokens, base, inc)
    tenant = _tenant_share(requests, base, inc)
    if tenant is not None:
        found["top_tenant_ratio"] = tenant
    return Workload(requests, base, inc, baseline, found, growth)


def _recorded(ts: Floats, window: Window) -> Window:
    """``window`` from its first request on, where that is later than any pause among them would explain."""
    late = float(ts[0]) - window.start
    longest = float(np.diff(ts).max())
    if late <= max(_PAUSES * longest, _DUE * window.seconds):
        return window
    return Window(float(ts[0]), window.end)


def _rates(requests: Requests, baseline: Window, incident: Window) -> Iterator[tuple[str, Finding]]:
    """Arrivals and begun sessions a second, compared on counts in equal bins."""
    first = requests.turn == 0
    for name, flags in (
        ("arrivals_per_second", np.ones(len(requests), dtype=bool)),
        ("sessions_per_second", first),
    ):
        if name == "sessions_per_second" and not requests.sessions:
            continue
        counts = [_counts(requests.ts[flags], window) for window in (baseline, incident)]
        finding = judge_values(SIGNALS[name], counts[0], counts[1], labels={"source": "request records"})
        if finding is not None:
            yield name, finding


def _counts(ts: Floats, window: Window) -> Floats:
    """Requests a second in about twelve equal bins; a little more than zero where there are none, so
    that a logarithm exists."""
    width = max(window.seconds / 12, 1e-6)
    edges = window.start + width * np.arange(13)
    counts, _ = np.histogram(ts, edges)
    rates: Floats = np.maximum(counts, 0.3) / width
    return rates


def growth_of(requests: Requests, base: Flags, inc: Flags) -> Growth | None:
    """Split the incident's long prompts into resent history and sudden giants.

    A prompt is *grown* when the session's previous turn had already left at least half of it;
    a *giant* when it is several times the usual length and did not come that way."""
    usual = requests.prompt[base]
    usual = usual[np.isfinite(usual)]
    if len(usual) < _FEWEST:
        return None
    usual_tokens = 1.25 * float(np.quantile(usual, 0.75))
    long = np.nan_to_num(requests.prompt) > usual_tokens
    history = np.nan_to_num(requests.history)
    if requests.sessions:
        grown = long & (history >= 0.5 * np.nan_to_num(requests.prompt))
        giant = long & ~grown & (np.nan_to_num(requests.prompt) > _GIANT * usual_tokens)
    else:
        grown = np.zeros(len(requests), dtype=bool)
        giant = np.nan_to_num(requests.prompt) > _GIANT * usual_tokens
    codes, longest = _longest(requests, grown & inc)
    first = requests.prompt[(requests.turn == 0) & np.isin(requests.session, codes)]
    return Growth(
        usual_tokens=usual_tokens,
        grown=grown,
        giant=giant,
        codes=codes,
        sessions=tuple(requests.sessions[code] for code in codes),
        longest_tokens=float(longest[0]) if len(longest) else float("nan"),
        first_tokens=float(np.nanmedian(first)) if np.isfinite(first).any() else float("nan"),
    )


def _longest(requests: Requests, chosen: Flags) -> tuple[Codes, Floats]:
    """Sessions of the chosen requests with their longest prompt, longest first."""
    order = np.lexsort((-requests.prompt[chosen], requests.session[chosen]))
    session, prompt = requests.session[chosen][order], requests.prompt[chosen][order]
    codes, at = np.unique(session, return_index=True)
    ranked = np.argsort(-prompt[at], kind="stable")
    return codes[ranked], prompt[at][ranked]


def _token_share(r: Requests, name: str, flags: Flags, usual: float, base: Flags, inc: Flags) -> Finding:
    """Share of prompt tokens beyond the usual length that flagged requests carry."""

    def share(window: Flags) -> float:
        tokens = np.nan_to_num(r.prompt[window])
        beyond = np.where(flags[window], np.maximum(tokens - usual, 0.0), 0.0)
        return float(beyond.sum() / max(tokens.sum(), 1.0))

    known = float(np.isfinite(r.prompt[inc]).mean())
    labels = {"source": "request records"}
    return _exact(name, labels, share(base), share(inc), known, _gathering(r.ts, flags & (base | inc)))


def _exact(
    name: str, labels: Mapping[str, str], before: float, during: float, known: float, onset: float | None
) -> Finding:
    """A share of what was recorded: no sampling, so the effect is its own bound."""
    signal = SIGNALS[name]
    effect = (during - before) / signal.floor
    return Finding(
        name, labels, signal.unit, before, during, effect, effect, effect, onset, known, during
    )  # fmt: skip


def _gathering(ts: Floats, flags: Flags) -> float | None:
    """When flagged requests begin to come regularly: the first with two more close behind."""
    times = ts[flags]
    if len(times) < 3:
        return None
    near = max(10 * float(np.median(np.diff(times))), 1.0)
    at = np.flatnonzero(times[2:] - times[:-2] <= near)
    return float(times[at[0]]) if len(at) else None


def _tenant_share(r: Requests, base: Flags, inc: Flags) -> Finding | None:
    """Share of tokens of the tenant whose share grew most; None with fewer than two tenants."""
    if len(r.tenants) < 2:
        return None
    tokens = np.nan_to_num(r.prompt) + np.nan_to_num(r.output)
    tokens = np.where(tokens > 0, tokens, np.nanmedian(r.prompt) if np.isfinite(r.prompt).any() else 1.0)
    shares = []
    for window in (base, inc):
        per = np.bincount(np.maximum(r.tenant[window], 0), weights=tokens[window], minlength=len(r.tenants))
        shares.append(per / max(per.sum(), 1.0))
    top = int(np.argmax(shares[1] - shares[0]))
    before, during = float(shares[0][top]), float(shares[1][top])
    # A tenant's requests come in sessions: those, not requests, are what a share is a sample of.
    counts = [len(np.unique(r.session[w])) if r.sessions else int(w.sum()) for w in (base, inc)]
    variance = sum(p * (1 - p) / max(n, 1) for p, n in zip((before, during), counts, strict=True))
    return _sampled(
        "top_tenant_ratio", {"source": "request records", "tenant": r.tenants[top]}, before, during, variance
    )


def _sampled(name: str, labels: Mapping[str, str], before: float, during: float, variance: float) -> Finding:
    """A share that is a sample: its effect is bounded by its own spread, as other findings' are."""
    signal, spread = SIGNALS[name], float(np.sqrt(variance))
    shift = during - before
    effect = shift / signal.floor
    if spread > 0:
        effect = float(np.sign(shift) * min(abs(effect), abs(shift) / (2.5 * spread)))
    low, high = ((shift + sign * 1.645 * spread) / signal.floor for sign in (-1, 1))
    return Finding(name, labels, signal.unit, before, during, effect, low, high, None, 1.0, during)


def _reuse(r: Requests) -> Floats:
    """Cached tokens over what the previous turn left behind, later turns only."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Floats = np.where(r.history > 0, np.minimum(r.cached / r.history, 1.0), np.nan)
    return share


def _switched(r: Requests) -> Floats:
    """1 where a turn came to another replica than the turn before, 0 where not, NaN for first turns."""
    if len(r.instances) < 2:
        return np.full(len(r), np.nan)
    before = r.instance[np.maximum(r.previous, 0)]
    switched: Floats = np.where(r.previous >= 0, (before != r.instance).astype(np.float64), np.nan)
    return switched
