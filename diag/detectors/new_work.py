"""Prompt tokens that nobody could expect to find in a cache: new work, and single requests that carry much.

What a prompt costs is what is computed of it. A long prompt that is cached costs nothing, and one that a
cache lost costs what it always would have: neither is new work. What a tenant usually misses tells which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diag.detectors.view import View
from diag.detectors.workload import Workload
from diag.model import Floats
from diag.records.cohorts import Flags, Requests

__all__ = ["Costly", "Extra", "Payers", "costly_of", "extra_of", "new_work", "payers_of"]

_FEWEST = 8
_A_PART = 0.25  # of a fair share of the requests, for a tenant to count as one that was there
_GIANT = 1.5  # times what three quarters of the usual requests need less than, with slack
_LEAST_RATE = 30.0  # tokens per second below which nothing is said of where they come from
_LEAST_GAP_SECONDS = 0.01
# A newcomer waits for the rest of the step that runs and for its own: up to two of the gaps that streams see.
_IN_ONE_STEP = 1.5
_WITH_GIANTS = 2.0  # the same where the long prompts' own first tokens are among them
_STEEPNESS = 4.0
_OWN_STEPS = 1.2  # gaps that a long prompt takes itself if it is computed in one step


@dataclass(frozen=True, slots=True, eq=False)
class Costly:
    """``flags``: requests (of all times) that need far more new computing than is usual;
    ``before``/``during``: the share of all computed tokens that they carry beyond the usual;
    ``usual_tokens``: what three quarters of the usual requests need less than, with a quarter's slack."""

    flags: Flags
    before: float
    during: float
    usual_tokens: float


@dataclass(frozen=True, slots=True)
class Extra:
    """Computed prompt tokens per second before and during, and the share (0 … 1) of the increase that would
    not have been computed at the baseline's misses: ``anew``."""

    before: float
    during: float
    anew: float


@dataclass(frozen=True, slots=True)
class Payers:
    """Who pays for long prompts: ``gap_seconds``: how much longer answers stand still (99th percentile),
    ``wait_seconds``: how much later the others' first tokens come (95th). ``ratio``: the second over what a
    prompt computed in one step would make of the first; above 1 those who wait behind pay, below those who
    stream."""

    gap_seconds: float
    wait_seconds: float
    ratio: float

    @property
    def waiting(self) -> float:
        """Degree (0 … 1) to which those behind pay."""
        return 1.0 / (1.0 + float(self.ratio**-_STEEPNESS))


def new_work(requests: Requests, base: Flags) -> Floats:
    """Tokens of each prompt that had to be computed and were not to be expected in a cache; the whole prompt
    where cached tokens are not known, NaN where the length is not."""
    computed = np.where(np.isfinite(requests.cached), requests.prompt - requests.cached, requests.prompt)
    expected = requests.prompt * _usual_misses(requests, base)
    work: Floats = np.minimum(computed, expected)
    return work


def _usual_misses(requests: Requests, base: Flags) -> Floats:
    """Share (0 … 1) of prompt tokens that each request's tenant missed in the baseline; 1 for tenants that
    were not there."""
    known = base & np.isfinite(requests.cached) & np.isfinite(requests.prompt)
    shares = np.ones(len(requests))
    for here, seen in _tenants(requests, known):
        total = float(requests.prompt[seen].sum())
        if total > 0:
            shares[here] = float((requests.prompt[seen] - requests.cached[seen]).sum()) / total
    return shares


def _tenants(requests: Requests, known: Flags) -> Iterator[tuple[Flags, Flags]]:
    """Each tenant's requests, and those ``known`` of which it is judged: its own; everybody's where records
    are too few for it to show; nothing for one that was hardly there among many."""
    codes = np.unique(requests.tenant)
    fair = known.sum() / len(codes)
    for code in codes:
        here = requests.tenant == code
        own = known & here
        if own.sum() >= _FEWEST:
            yield here, own
        elif own.sum() > _A_PART * fair and known.sum() >= _FEWEST:
            yield here, known


def costly_of(work: Workload) -> Costly | None:
    """Which requests are giants by what they cost; None with fewer than twelve usual ones."""
    requests = work.requests
    tokens = new_work(requests, work.baseline)
    usual = tokens[work.baseline & np.isfinite(tokens)]
    if len(usual) < 12:
        return None
    limit = 1.25 * float(np.quantile(usual, 0.75))
    flags: Flags = np.nan_to_num(tokens) > max(float(np.quantile(usual, 0.9)), _GIANT * limit)
    flags &= ~_lost(requests, work.baseline, tokens)
    if requests.sessions and work.growth is not None:
        flags &= ~work.growth.grown
    before, during = (_beyond(tokens, flags, window, limit) for window in (work.baseline, work.incident))
    return Costly(flags, before, during, limit)


def _lost(requests: Requests, base: Flags, tokens: Floats) -> Flags:
    """Prompts as long as their tenant's usually are, of which a cache lost most: the few tokens that would
    always have been computed make no giant of them."""
    computed = requests.prompt - requests.cached
    usual = np.full(len(requests), np.nan)
    for here, seen in _tenants(requests, base & np.isfinite(requests.prompt)):
        usual[here] = float(np.quantile(requests.prompt[seen], 0.9))
    with np.errstate(invalid="ignore"):
        lost: Flags = (tokens < 0.5 * computed) & (requests.prompt <= _GIANT * usual)
    return lost


def _beyond(tokens: Floats, flags: Flags, window: Flags, limit: float) -> float:
    known = np.nan_to_num(tokens[window])
    beyond = np.where(flags[window], known - limit, 0.0)
    return float(beyond.sum() / max(known.sum(), 1.0))


def extra_of(view: View) -> Extra | None:
    """Where more prefill comes from: from records by tenant, else from the engines' hit rate; None when
    neither is there or prefill did not grow."""
    found = _extra_from_records(view) if view.workload is not None else None
    return found if found is not None else _extra_from_metrics(view)


def _extra_from_records(view: View) -> Extra | None:
    assert view.workload is not None
    requests, work = view.workload.requests, view.workload
    known = np.isfinite(requests.cached) & np.isfinite(requests.prompt)
    if (known & work.baseline).sum() < 12 or (known & work.incident).sum() < 12:
        return None
    computed = np.where(known, requests.prompt - requests.cached, 0.0)
    expected = np.where(known, requests.prompt * _usual_misses(requests, work.baseline), 0.0)
    before = float(computed[work.baseline].sum()) / work.quiet.seconds
    during = float(computed[work.incident].sum()) / view.spans.settled.seconds
    lost = 0.0
    for code in np.unique(requests.tenant[work.incident]):
        here = work.incident & (requests.tenant == code)
        lost += max(float((computed[here] - expected[here]).sum()), 0.0)
    return _extra(before, during, lost / view.spans.settled.seconds)


def _extra_from_metrics(view: View) -> Extra | None:
    hits, prompts = view.fleet.get("prefix_cache_hit_ratio"), view.fleet.get("prompt_tokens_per_second")
    if hits is None or prompts is None:
        return None
    before, during = (1 - hits.before) * prompts.before, (1 - hits.during) * prompts.during
    # New prompts lower the rate of hits, too: lost is only what is no longer found of what was found before.
    return _extra(before, during, max(hits.before * prompts.before - hits.during * prompts.during, 0.0))


def _extra(before: float, during: float, lost: float) -> Extra | None:
    grown = during - before
    if grown < max(0.15 * before, _LEAST_RATE):
        return None
    return Extra(before, during, float(np.clip(lost / grown, 0.0, 1.0)))


def payers_of(view: View) -> Payers | None:
    """Compare the two blows in the incident; None where gaps or first tokens are not known."""
    gap = view.fleet.get("inter_token_seconds_p99")
    if gap is None:
        return None
    longer = max(gap.during - gap.before, _LEAST_GAP_SECONDS)
    costly = costly_of(view.workload) if view.workload is not None else None
    if view.workload is not None and costly is not None:
        late = _later(view.workload, ~costly.flags)
        if late is not None:
            ratio = _bounded(late / longer / _IN_ONE_STEP)
            waits = view.workload.requests.waited[costly.flags & view.workload.incident]
            waits = waits[np.isfinite(waits)]
            if len(waits) >= _FEWEST:
                own = float(np.quantile(waits, 0.25)) / max(gap.during, _LEAST_GAP_SECONDS)
                ratio = float(np.sqrt(ratio * _bounded(own / _OWN_STEPS)))
            return Payers(longer, late, ratio)
    first = view.fleet.get("ttft_seconds_p95")
    if first is None:
        return None
    late = first.during - first.before
    return Payers(longer, late, _bounded(late / longer / _WITH_GIANTS))


def _bounded(ratio: float) -> float:
    """Beyond a factor of four it is another matter, a queue for example."""
    return float(np.clip(ratio, 0.25, 4.0))


def _later(work: Workload, among: Flags) -> float | None:
    """How much later the first tokens of requests come, at the 95th percentile, in seconds."""
    sides = []
    for window in (work.baseline, work.incident):
        waits = work.requests.waited[window & among]
        waits = waits[np.isfinite(waits)]
        if len(waits) < 2 * _FEWEST:
            return None
        sides.append(float(np.quantile(waits, 0.95)))
    return sides[1] - sides[0]
