"""What is counted of sessions, tenants and models, a batch at a time.

Batches go through C loops column by column, which costs a third of going through them row by row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import add, itemgetter
from typing import Any

from diag_exporter.sessions.buckets import LENGTH_BINS, LENGTH_LIMITS, SECONDS_BOUNDS, TOKEN_BOUNDS, Buckets
from diag_exporter.sessions.events import Event

__all__ = ["MODEL", "SOURCE", "TENANT", "ModelTally", "Session", "TenantTally", "grouped"]

# Longer than the last limit: the bin of requests whose length is not known.
_LENGTHLESS = LENGTH_LIMITS[-1] + 1


def _field(name: str) -> Callable[[Event], Any]:
    return itemgetter(Event._fields.index(name))


MODEL, TENANT, SOURCE = _field("model"), _field("tenant"), _field("session_source")
_PROMPT, _OUTPUT, _DURATION = _field("prompt_tokens"), _field("output_tokens"), _field("duration_seconds")
_STATUS, _CACHED = _field("status"), _field("cached_tokens")
_TTFT, _QUEUE = _field("ttft_seconds"), _field("queue_seconds")


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

    def count(self, events: list[Event]) -> int:
        """Count requests of this tenant; the tokens they used."""
        prompts: int = sum(filter(None, map(_PROMPT, events)))
        outputs: int = sum(filter(None, map(_OUTPUT, events)))
        self.requests += len(events)
        self.prompt_tokens += prompts
        self.output_tokens += outputs
        self.seconds += sum(filter(None, map(_DURATION, events)))
        return prompts + outputs


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

    def count(self, events: list[Event]) -> None:
        """Count requests of this model: all that does not depend on their sessions."""
        for status, number in Counter(map(_STATUS, events)).items():
            self.requests[status] += number
            if status == "aborted":
                self._count_aborted([event for event in events if event.status == "aborted"])
        self._count_latencies(events)
        self.output_tokens += sum(filter(None, map(_OUTPUT, events)))
        sized = [event for event in events if event[5] is not None]
        prompts: list[int] = list(map(_PROMPT, sized))
        self.prompt_tokens += sum(prompts)
        answers = [answer or 0 for answer in map(_OUTPUT, sized)]
        self.context.observe_all(list(map(add, prompts, answers)))
        cached: list[Any] = list(map(_CACHED, sized))
        if None in cached:
            pairs = [pair for pair in zip(prompts, cached, strict=True) if pair[1] is not None]
            prompts, cached = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.cached_prompt += sum(prompts)
        self.cached += sum(map(min, prompts, cached))

    def _count_latencies(self, events: list[Event]) -> None:
        lengths = [_LENGTHLESS if prompt is None else prompt for prompt in map(_PROMPT, events)]
        places = list(map(bisect_left, repeat(LENGTH_LIMITS), lengths))
        for bins, field_of in ((self.ttft, _TTFT), (self.queue, _QUEUE)):
            groups: defaultdict[int, list[float]] = defaultdict(list)
            for place, seconds in zip(places, map(field_of, events), strict=True):
                if seconds is not None:
                    groups[place].append(seconds)
            for place, values in groups.items():
                held = bins[place]
                if held is None:
                    held = bins[place] = Buckets(SECONDS_BOUNDS)
                held.observe_all(values)

    def _count_aborted(self, events: list[Event]) -> None:
        for event in events:
            self.aborted_tokens += (event.prompt_tokens or 0) + (event.output_tokens or 0)
            if event.tokens_after_abort is not None:
                self.after_abort = (self.after_abort or 0) + event.tokens_after_abort

    def count_growth(self, tokens: list[int]) -> None:
        """Count how much longer prompts were than those before them (negative: shorter)."""
        grown = [number for number in tokens if number >= 0]
        self.growth.observe_all(grown)
        self.shrinks += len(tokens) - len(grown)


def grouped(events: Sequence[Event], key: Callable[[Event], str]) -> dict[str, list[Event]]:
    """Events by ``key``, each group in their order."""
    if len(names := set(map(key, events))) == 1:
        return {names.pop(): list(events)}
    groups: defaultdict[str, list[Event]] = defaultdict(list)
    for name, event in zip(map(key, events), events, strict=True):
        groups[name].append(event)
    return groups
