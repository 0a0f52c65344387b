"""Who is active, how long their context is, what repeats: all of it in bounded memory.

Activity is told by the moment an event arrives here (a clock that never jumps), not by what a log
claims, so that neither a clock that was set nor a late log makes sessions old or young.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from diag_exporter.sessions.events import SESSION_SOURCES, Event
from diag_exporter.sessions.shares import WindowedShares
from diag_exporter.sessions.tallies import MODEL, SOURCE, TENANT, ModelTally, Session, TenantTally, grouped

__all__ = ["OTHER", "Limits", "SessionTable", "label_text"]

OTHER = "other"
_UNKNOWN = "unknown"
_BATCH = 256
_BATCH_SECONDS = 1.0
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
        self.sources = dict.fromkeys(SESSION_SOURCES, 0)
        self.evicted = 0
        self.active_tenants = 0
        slots = 10
        self.shares = WindowedShares(slots=slots, slot_seconds=self.limits.window_seconds / slots)
        self._others = ModelTally(OTHER)
        self._pending: list[Event] = []
        self._since = clock()  # when the first of them came

    # --- taking in --------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Take in one finished request; it is counted with the next few, or when somebody reads."""
        now = self.clock()
        with self.lock:
            if self._pending and (len(self._pending) >= _BATCH or now - self._since > _BATCH_SECONDS):
                self.settle()
            if not self._pending:
                self._since = now
            self._pending.append(event)

    def add_all(self, events: Sequence[Event]) -> None:
        """Take in a batch that arrived at one moment."""
        with self.lock:
            self.settle()
            self._pending.extend(events)
            self._since = self.clock()
            self.settle()

    def settle(self) -> None:
        """Count what was taken in. Call under the lock, before reading."""
        events, self._pending = self._pending, []
        now = self._since
        for name, group in grouped(events, MODEL).items():
            model = self._model(name, group)
            model.count(group)
            self._count_sessions(model, group, now)
        for tenant, group in grouped(events, TENANT).items():
            if tenant:
                self._count_tenant(tenant, group)
        for source, number in Counter(map(SOURCE, events)).items():
            # A log may claim anything; what is on the page is bounded.
            self.sources[source if source in self.sources else "log"] += number

    def _model(self, name: str, events: list[Event]) -> ModelTally:
        held = self.models.get(name)
        if held is not None:
            return held
        label = label_text(name)
        # Clients may ask for models that do not exist: only an answer earns a name on the page.
        full = len(self.models) >= self.limits.models or all(event.status != "ok" for event in events)
        if full or label == OTHER or any(label == model.name for model in self.models.values()):
            return self._others
        self.models[name] = ModelTally(label)
        return self.models[name]

    def _count_tenant(self, name: str, events: list[Event]) -> None:
        tally = self.tenants.get(name)
        if tally is None and len(self.tenants) < self.limits.tenants:
            tally = self.tenants[name] = TenantTally()
        tokens = (tally or self.other).count(events)
        if tokens:
            self.shares.add(name, tokens)

    def _count_sessions(self, model: ModelTally, events: list[Event], now: float) -> None:
        sessions, forgotten = self.sessions, now - self.limits.forget_seconds
        known = repeats = 0
        growth: list[int] = []
        for _, _, _, key, source, prompt, _, output, _, _, _, _, _, _, repeated, _ in events:
            before = 0
            if key is not None:
                # Taken out and put back, so that the dict is in order of last use.
                session = sessions.pop(key, None)
                if session is None or session.last < forgotten:
                    if len(sessions) >= self.limits.sessions:
                        self._make_room()
                    session = Session(now, now, model)
                sessions[key] = session
                session.last, session.model = now, model
                session.turns += 1
                before = session.prompt
                if prompt is not None:
                    session.prompt = prompt
                    session.context = prompt + output if output else prompt
            if prompt is None or (repeated is None and (key is None or source == "user")):
                continue  # of a person with several conversations, the last prompt says nothing of this one
            # A prompt that grew holds the one before; one that shrank was cut, or is another conversation.
            shared = repeated if repeated is not None else before if prompt >= before else 0
            known += prompt
            repeats += shared if shared < prompt else prompt
            if before:
                growth.append(prompt - before)
        model.session_prompt += known
        model.session_repeated += repeats
        model.count_growth(growth)

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
        """Sessions with a request in the last ``active_seconds``; forgets those idle for
        too long. Call under the lock."""
        since, gone = now - self.limits.active_seconds, now - self.limits.forget_seconds
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
