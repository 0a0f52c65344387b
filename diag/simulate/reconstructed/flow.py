"""A stream of made-up requests through one engine, by arithmetic alone.

Nobody schedules here: waiting, prefill speed and the time a token takes are given as profiles, and requests
pass through them. What all pages need then agrees with itself: counters, histograms, gauges and records
are counts over one and the same list. (The serving simulator, which does schedule, is another matter on
purpose: these bundles must not inherit its mistakes.)
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diag.model import Floats
from diag.simulate.profiles import Profile, constant

__all__ = ["Ask", "Flow", "Traffic", "flow"]

RUN_IN_SECONDS = 600.0
_SHAPE = 4.0  # gaps between arrivals: gamma, steadier than chance, so that small windows look alike


@dataclass(frozen=True, slots=True)
class Ask:
    """A single request beside the stream. ``at``: seconds since the window's start. ``queue_seconds`` None: as the
    profile says. ``leaves_after_seconds``: its client closes then, answered in full or not."""

    at: float
    prompt_tokens: int
    output_tokens: int
    queue_seconds: float | None = None
    tenant: str = ""
    leaves_after_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Traffic:
    """Who asks what, and how fast it is served. Times are seconds since the window's start.

    ``speed``: of the engine, 1 as set by the other figures, 0 while no step runs. ``slots``: most requests at
    once, 0 for no limit (then ``queue_seconds`` alone makes requests wait; with a limit both do). ``spread``: sigma
    of the lengths' logarithm. ``patience_seconds``: when clients without a first token leave; the engine notices
    if ``abort_frees``. ``client_gap_seconds``: before the engine sees a request. ``down``: spells without a
    process. ``pool_tokens``: the KV pool. ``connections``: most requests that a proxy lets through at
    once, 0 for no limit. ``hangup``: when every client leaves at once. ``tokens_per_step``: what a speculating
    engine makes in one step; ``token_seconds`` is then a step's time."""

    requests_per_second: Profile
    prompt_tokens: Profile
    output_tokens: Profile
    token_seconds: Profile
    prefill_tokens_per_second: Profile = constant(8000.0)
    queue_seconds: Profile = constant(0.004)
    cached_ratio: Profile = constant(0.0)
    speed: Profile = constant(1.0)
    slots: int = 0
    pool_tokens: float = 400_000.0
    spread: float = 0.35
    patience_seconds: float = math.inf
    abort_frees: bool = True
    client_gap_seconds: Profile = constant(0.015)
    down: tuple[tuple[float, float], ...] = ()
    connections: int = 0
    hangup: float = math.inf
    tokens_per_step: float = 1.0
    asks: tuple[Ask, ...] = ()
    tenants: tuple[str, ...] = ("app",)
    seed: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """Requests, ordered by ``sent``; each array has shape (requests,), times are seconds since the window's start,
    infinite where it never comes. ``freed``: when the engine lets go of it; ``closed``: when the client does.
    ``grid``/``tokens_done``: what a stream that decodes all the time would have produced up to each second."""

    traffic: Traffic
    sent: Floats
    arrived: Floats
    scheduled: Floats
    first: Floats
    freed: Floats
    closed: Floats
    prompt: Floats
    cached: Floats
    output: Floats
    status: NDArray[np.str_]
    tenant: NDArray[np.str_]
    grid: Floats
    tokens_done: Floats

    def running(self, times: Floats) -> Floats:
        """Scheduled and not let go of, at ``times``, shape (n,)."""
        return _count(self.scheduled, times) - _count(np.maximum(self.freed, self.scheduled), times)

    def waiting(self, times: Floats) -> Floats:
        """At the engine and not scheduled."""
        left = np.minimum(self.scheduled, self.freed)
        return _count(self.arrived, times) - _count(np.maximum(left, self.arrived), times)

    def kv_used(self, times: Floats) -> Floats:
        """Share of the pool that running requests hold, 0 … 1."""
        at = times[:, np.newaxis]
        inside = (self.scheduled <= at) & (self.freed > at)
        made = np.interp(times, self.grid, self.tokens_done)[:, np.newaxis] - self.done_at(self.first)
        made = np.where(self.first <= at, made, 0.0) * self.traffic.tokens_per_step
        made = np.clip(made, 0.0, self.output)
        held: Floats = np.where(inside, self.prompt + made, 0.0).sum(axis=1)
        return np.clip(held / self.traffic.pool_tokens, 0.0, 1.0)

    def done_at(self, times: Floats) -> Floats:
        """``tokens_done`` at any times, infinite ones held to the end."""
        return np.interp(times, self.grid, self.tokens_done)


def flow(traffic: Traffic, seconds: float) -> Flow:
    """Send the stream from ten minutes before the window to its end and see what becomes of it."""
    rng = np.random.default_rng([traffic.seed, 0x5EED])
    sent, prompt, output, asked = _asked(traffic, seconds, rng)
    gap = traffic.client_gap_seconds.over(sent) * rng.lognormal(0.0, 0.15, len(sent))
    arrived = sent + gap
    cached = np.minimum(np.floor(prompt * traffic.cached_ratio.over(sent) / 16.0) * 16.0, prompt - 1.0)
    grid = np.arange(-RUN_IN_SECONDS, seconds + 1.0)
    speed = traffic.speed.over(grid)
    work = np.concatenate([[0.0], np.cumsum(speed[:-1])])
    done = np.concatenate([[0.0], np.cumsum((speed / traffic.token_seconds.over(grid))[:-1])])
    waits = traffic.queue_seconds.over(arrived) * rng.lognormal(0.0, 0.2, len(sent))
    waits = np.where(np.isnan(asked), waits, asked)
    prefill = (prompt - cached) / traffic.prefill_tokens_per_second.over(arrived) + 0.02
    arrived, scheduled, first, freed = _served(traffic, arrived, waits, prefill, output, (grid, work, done))
    leaves, whole = _leaving(traffic, sent)
    gone = np.where(whole, freed, first) > leaves
    if traffic.abort_frees:
        freed = np.where(gone, np.minimum(freed, leaves), freed)
    scheduled = np.where(scheduled < freed, scheduled, np.inf)
    closed = np.where(gone, leaves, freed)
    status = np.where(gone, "aborted", np.where(np.isfinite(closed), "ok", ""))
    scheduled, first, freed, closed, status = _interrupted(
        traffic, sent, (scheduled, first, freed, closed), status
    )
    tenants = np.array(traffic.tenants)[np.arange(len(sent)) % len(traffic.tenants)]
    names = {ask.at: ask.tenant for ask in traffic.asks if ask.tenant}
    tenants = np.array([names.get(at, name) for at, name in zip(sent.tolist(), tenants, strict=True)])
    return Flow(
        traffic, sent, arrived, scheduled, first, freed, closed, prompt, cached, output, status, tenants, grid, done
    )  # fmt: skip


def _asked(
    traffic: Traffic, seconds: float, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats, Floats]:
    """Arrivals, lengths, and the waits that single requests bring along (NaN: none)."""
    grid = np.arange(-RUN_IN_SECONDS, seconds + 1.0)
    wanted = np.concatenate([[0.0], np.cumsum(traffic.requests_per_second.over(grid)[:-1])])
    gaps = rng.gamma(_SHAPE, 1.0 / _SHAPE, int(wanted[-1] * 1.2) + 20).cumsum()
    stream = np.interp(gaps[gaps < wanted[-1]], wanted, grid)
    extra = traffic.asks
    sent = np.concatenate([stream, [ask.at for ask in extra]])
    prompt = np.concatenate(
        [_lengths(traffic.prompt_tokens, stream, traffic, rng), [ask.prompt_tokens for ask in extra]]
    )
    output = np.concatenate(
        [_lengths(traffic.output_tokens, stream, traffic, rng), [ask.output_tokens for ask in extra]]
    )
    waits = [np.nan if ask.queue_seconds is None else ask.queue_seconds for ask in extra]
    asked = np.concatenate([np.full(len(stream), np.nan), waits])
    order = np.argsort(sent, kind="stable")
    return sent[order], prompt[order], output[order], asked[order]


def _lengths(mean: Profile, at: Floats, traffic: Traffic, rng: np.random.Generator) -> Floats:
    sigma = traffic.spread
    drawn = mean.over(at) * rng.lognormal(-sigma * sigma / 2.0, sigma, len(at))
    lengths: Floats = np.maximum(np.rint(drawn), 1.0)
    return lengths


def _inverse(target: Floats | float, cumulative: Floats, grid: Floats) -> Floats:
    """When ``cumulative`` reaches ``target``; infinite where it never does."""
    at = np.interp(target, cumulative, grid)
    reached: Floats = np.where(np.asarray(target) >= cumulative[-1], np.inf, at)
    return reached


def _served(
    traffic: Traffic,
    arrived: Floats,
    waits: Floats,
    prefill: Floats,
    output: Floats,
    courses: tuple[Floats, Floats, Floats],
) -> tuple[Floats, Floats, Floats, Floats]:
    """At the engine, scheduled, first token, last token. With slots or connections first come, first served."""
    grid, work, done = courses

    def ends(begin: Floats, rows: slice | int) -> tuple[Floats, Floats]:
        first = _inverse(np.interp(begin, grid, work) + prefill[rows], work, grid)
        first = np.where(np.isfinite(begin), first, np.inf)
        steps = (output[rows] - 1.0) / traffic.tokens_per_step
        last = _inverse(np.interp(np.minimum(first, grid[-1]), grid, done) + steps, done, grid)
        return first, np.where(np.isfinite(first), last, np.inf)

    limit = traffic.slots or traffic.connections
    if not limit:
        begin = arrived + waits
        return arrived, begin, *ends(begin, slice(None))
    came, begin, first, last = (np.empty_like(arrived) for _ in range(4))
    busy: list[float] = []
    for row in range(len(arrived)):
        free = heapq.heappop(busy) if len(busy) >= limit else -np.inf
        came[row] = max(arrived[row], free) if traffic.connections else arrived[row]
        begin[row] = max(came[row] + waits[row], free)
        one = ends(begin[row : row + 1], slice(row, row + 1))
        first[row], last[row] = one[0][0], one[1][0]
        heapq.heappush(busy, last[row])
    return came, begin, first, last


def _leaving(traffic: Traffic, sent: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """When each client would leave, and whether it leaves for want of the whole answer, not of a first token."""
    held = {ask.at: ask.leaves_after_seconds for ask in traffic.asks}
    patience = np.array([held.get(at, traffic.patience_seconds) for at in sent.tolist()])
    leaves = np.where(sent < traffic.hangup, np.minimum(sent + patience, traffic.hangup), sent + patience)
    whole = (leaves == traffic.hangup) | np.array([at in held for at in sent.tolist()], dtype=np.bool_)
    return leaves, whole


def _interrupted(
    traffic: Traffic, sent: Floats, moments: tuple[Floats, Floats, Floats, Floats], status: NDArray[np.str_]
) -> tuple[Floats, Floats, Floats, Floats, NDArray[np.str_]]:
    """What a dead process does to requests: those it had fail with it, those that come fail at once."""
    scheduled, first, freed, closed = moments
    status = status.astype("<U8")
    for start, end in traffic.down:
        had = (sent < start) & (closed > start)
        came = (sent >= start) & (sent < end)
        scheduled = np.where(came, np.inf, np.where(had & (scheduled > start), np.inf, scheduled))
        first = np.where(came | (had & (first > start)), np.inf, first)
        freed = np.where(had, start, np.where(came, sent, freed))
        closed = np.where(had, start, np.where(came, sent + 0.01, closed))
        status = np.where(had | came, "error", status)
    return scheduled, first, freed, closed, status


def _count(moments: Floats, times: Floats) -> Floats:
    counted: Floats = np.searchsorted(np.sort(moments), times, side="right").astype(np.float64)
    return counted
