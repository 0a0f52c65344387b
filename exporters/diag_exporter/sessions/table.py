"""Who is active, how long their context is, what repeats: all of it in bounded memory.

Activity is told by the moment an event arrives here (a clock that never jumps), not by what a log
claims, so that neither a clock that was set nor a late log makes sessions old or young.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice, takewhile

from diag_exporter.sessions.buckets import LENGTH_BINS, LENGTH_LIMITS, SECONDS_BOUNDS, TOKEN_BOUNDS, Buckets
from diag_exporter.sessions.events import SESSION_SOURCES, Event
from diag_exporter.sessions.shares import WindowedShares

__all__ = ["OTHER", "Limits", "ModelTally", "Session", "SessionTable", "TenantTally", "label_text"]

OTHER = "other"
_UNKNOWN = "unknown"
_UNKNOWN_BIN = len(LENGTH_BINS) - 1
_LABEL_CHARS_MAX = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of memory and of what is on the page. ``active_seconds``: a session counts as active this
    long after its last request; ``forget_seconds``: after that its next request starts anew."""

    sessions: int = 100_000
    tenants: int = 20
    models: int = 20
    active_seconds: float = 900.0
    forget_seconds: float = 3600.0
    window_seconds: float = 300.0


@dataclass(slots=True)
class Session:
    """What is kept of a session: times (monotonic seconds), tokens of its last request, its turns."""

    first: float
    last: float
    model: ModelTally
    prompt: int = 0
    context: int = 0
    turns: int = 0


@dataclass(slots=True)
class TenantTally:
    """What one tenant used since it is on the page."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class ModelTally:
    """Counts of one model since start. ``*_session`` pairs cover requests of known sessions,
    ``*_cached`` pairs those whose cached tokens are known: only like is divided by like."""

    name: str
    requests: dict[str, int] = field(default_factory=lambda: {"ok": 0, "error": 0, "aborted": 0})
    prompt_tokens: int = 0
    output_tokens: int = 0
    session_prompt: int = 0
    session_repeated: int = 0
    cached_prompt: int = 0
    cached: int = 0
    aborted_tokens: int = 0
    after_abort: int | None = None
    shrinks: int = 0
    context: Buckets = field(default_factory=lambda: Buckets(TOKEN_BOUNDS))
    growth: Buckets = field(default_factory=lambda: Buckets(TOKEN_BOUNDS))
    ttft: list[Buckets | None] = field(default_factory=lambda: [None] * len(LENGTH_BINS))
    queue: list[Buckets | None] = field(default_factory=lambda: [None] * len(LENGTH_BINS))
    past: deque[tuple[float, int, int, int, int]] = field(default_factory=deque)


def label_text(name: str) -> str:
    """``name`` fit for a label: printable, of bounded length, never empty."""
    text = "".join(char if char.isprintable() else "?" for char in name[:_LABEL_CHARS_MAX]).strip()
    return text or _UNKNOWN


class SessionTable:
    """Takes in events from any thread; the collector reads it. Implements ``events.Sink``."""

    def __init__(self, limits: Limits | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or Limits()
        self.clock = clock
        self.lock = threading.Lock()
        self.sessions: dict[int, Session] = {}
        self.models: dict[str, ModelTally] = {}
        self.tenants: dict[str, TenantTally] = {}
        self.other = TenantTally()
        self.in_flight: dict[str, int] = {}
        self.sees_starts = False
        # A feed that names another source is counted under it and not shown: it cannot break the page.
        self.sources: Counter[str] = Counter(dict.fromkeys(SESSION_SOURCES, 0))
        self.evicted = 0
        self.active_tenants = 0
        slots = 10
        self.shares = WindowedShares(slots=slots, slot_seconds=self.limits.window_seconds / slots)
        self._others = ModelTally(OTHER)

    # --- taking in --------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Take in one finished request."""
        with self.lock:
            self._add(event, self.clock())

    def add_all(self, events: list[Event]) -> None:
        """Take in a batch that arrived at one moment."""
        now = self.clock()
        with self.lock:
            for event in events:
                self._add(event, now)

    def _add(self, event: Event, now: float) -> None:
        # Written out flat: this is the hot path of a hundred thousand events a second.
        (_, name, tenant, key, source, prompt, cached, output, ttft, queue, seconds, status, after, _,
         repeated, _) = event  # fmt: skip
        model = self.models.get(name) or self._model(event)
        model.requests[status] += 1
        spent = (prompt or 0) + (output or 0)
        if tenant:
            self._tally_tenant(tenant, spent, output or 0, seconds or 0.0)
        if prompt is None:
            where = _UNKNOWN_BIN
        else:
            where = bisect_left(LENGTH_LIMITS, prompt)
            model.prompt_tokens += prompt
            context = model.context
            context.counts[bisect_left(TOKEN_BOUNDS, spent)] += 1
            context.total += spent
            if cached is not None:
                model.cached_prompt += prompt
                model.cached += cached if cached < prompt else prompt
        if output:
            model.output_tokens += output
        if ttft is not None:
            held = model.ttft[where] or _opened(model.ttft, where)
            held.counts[bisect_left(SECONDS_BOUNDS, ttft)] += 1
            held.total += ttft
        if queue is not None:
            held = model.queue[where] or _opened(model.queue, where)
            held.counts[bisect_left(SECONDS_BOUNDS, queue)] += 1
            held.total += queue
        if status == "aborted":
            model.aborted_tokens += spent
            if after is not None:
                model.after_abort = (model.after_abort or 0) + after
        self.sources[source] += 1
        if key is not None:
            self._tally_session(key, model, prompt, spent, repeated, source, now)
        elif prompt is not None and repeated is not None:
            model.session_prompt += prompt
            model.session_repeated += min(repeated, prompt)

    def _tally_session(
        self, key: int, model: ModelTally, prompt: int | None, spent: int, repeated: int | None,
        source: str, now: float,
    ) -> None:  # fmt: skip
        # Taken out and put back at the end, so that the dict is in order of last use.
        session = self.sessions.pop(key, None)
        if session is None or now - session.last > self.limits.forget_seconds:
            if len(self.sessions) >= self.limits.sessions:
                self._make_room()
            session = Session(now, now, model)
        self.sessions[key] = session
        session.last = now
        session.model = model
        session.turns += 1
        if prompt is None:
            return
        before = session.prompt
        session.prompt = prompt
        session.context = spent
        if repeated is None:
            if source == "user":
                return  # several conversations of one person: what came before says nothing about this one
            # A prompt that grew holds the one before; one that shrank was cut, or is another conversation.
            repeated = before if prompt >= before else 0
        model.session_prompt += prompt
        model.session_repeated += repeated if repeated < prompt else prompt
        if before:
            if prompt >= before:
                growth = model.growth
                growth.counts[bisect_left(TOKEN_BOUNDS, prompt - before)] += 1
                growth.total += prompt - before
            else:
                model.shrinks += 1

    def _tally_tenant(self, name: str, spent: int, output: int, seconds: float) -> None:
        tally = self.tenants.get(name)
        if tally is None:
            if len(self.tenants) < self.limits.tenants:
                tally = self.tenants[name] = TenantTally()
            else:
                tally = self.other
        tally.requests += 1
        tally.prompt_tokens += spent - output
        tally.output_tokens += output
        tally.seconds += seconds
        if spent:
            self.shares.add(name, spent)

    def _model(self, event: Event) -> ModelTally:
        # Clients may ask for models that do not exist: only an answer earns a name on the page.
        if event.status != "ok" or len(self.models) >= self.limits.models:
            return self._others
        label = label_text(event.model)
        if label == OTHER or any(label == held.name for held in self.models.values()):
            return self._others
        tally = self.models[event.model] = ModelTally(label)
        return tally

    def _make_room(self) -> None:
        """Drop the hundredth of the sessions that were idle longest."""
        for key in list(islice(self.sessions, len(self.sessions) // 100 + 1)):
            del self.sessions[key]
            self.evicted += 1

    # --- in flight --------------------------------------------------------------------------------

    def began(self, tenant: str) -> None:
        """A request of ``tenant`` is in flight from now on."""
        with self.lock:
            self.sees_starts = True
            self.in_flight[tenant] = self.in_flight.get(tenant, 0) + 1

    def ended(self, tenant: str) -> None:
        """The counterpart of ``began``."""
        with self.lock:
            left = self.in_flight.get(tenant, 0) - 1
            if left > 0:
                self.in_flight[tenant] = left
            else:
                self.in_flight.pop(tenant, None)

    # --- reading ----------------------------------------------------------------------------------

    def all_models(self) -> list[ModelTally]:
        """Named models, and the rest when there is one."""
        rest = [self._others] if any(self._others.requests.values()) else []
        return [*self.models.values(), *rest]

    def active(self, now: float) -> list[Session]:
        """Sessions with a request in the last ``active_seconds``; forgets those idle for too long."""
        since, gone = now - self.limits.active_seconds, now - self.limits.forget_seconds
        with self.lock:
            idle = takewhile(lambda item: item[1].last < gone, self.sessions.items())
            for key in [key for key, _ in idle]:
                del self.sessions[key]
            return list(takewhile(lambda session: session.last >= since, reversed(self.sessions.values())))

    def turn(self, now: float) -> dict[str, float]:
        """Close the books of a moment: share of the window's tokens by tenant on the page (and
        ``other``, whose name no tenant can take); empty when there were none. Call under the lock."""
        self.shares.turn(now)
        weights, total = self.shares.weights()
        self.active_tenants = len(weights)
        if not total:
            return {}
        self._renew_places(weights)
        shares = {name: weights.get(name, 0.0) / total for name in self.tenants}
        shares[""] = max(1.0 - sum(shares.values()), 0.0)
        return shares

    def _renew_places(self, weights: dict[str, float]) -> None:
        """Let heavy newcomers take the places of light tenants. What the newcomer used before stays
        with ``other``, so that no counter ever jumps or falls; the leaver's series ends."""
        waiting = sorted((weight, name) for name, weight in weights.items() if name not in self.tenants)
        places = sorted((weights.get(name, 0.0), name) for name in self.tenants)
        for (weight, newcomer), (least, leaver) in zip(reversed(waiting), places, strict=False):
            # Twice as heavy, or places would change hands all the time.
            if weight <= 2 * least:
                break
            del self.tenants[leaver]
            self.tenants[newcomer] = TenantTally()

    def ratios(self, model: ModelTally, now: float) -> tuple[float | None, float | None]:
        """Shares of prompt tokens over the window: repeated, and cached. None where nothing is known.
        Call under the lock, about as often as the page is renewed."""
        past = model.past
        held = (now, model.session_prompt, model.session_repeated, model.cached_prompt, model.cached)
        past.append(held)
        since = now - self.limits.window_seconds
        while len(past) > 2 and past[1][0] <= since:
            past.popleft()
        first = past[0] if len(past) > 1 else (now, 0, 0, 0, 0)
        prompts, prompts_cached = held[1] - first[1], held[3] - first[3]
        return (
            (held[2] - first[2]) / prompts if prompts else None,
            (held[4] - first[4]) / prompts_cached if prompts_cached else None,
        )


def _opened(bins: list[Buckets | None], where: int) -> Buckets:
    held = bins[where] = Buckets(SECONDS_BOUNDS)
    return held
