"""One request told by two feeds (a gateway's log or the proxy, and the engine's span) becomes one event.

Whichever comes first waits for the other, for a while and in bounded number; what finds no partner goes
on alone. A gateway knows who asked and how it ended, an engine knows tokens and where time went. To the
joiner the proxy is one more log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from diag_exporter.sessions.events import Event, Sink
from diag_exporter.sessions.feeds.json_log import BatchSink

__all__ = ["JoinedSink", "Joiner", "joined"]

Number = TypeVar("Number", int | None, float | None)


def joined(log: Event, span: Event) -> Event:
    """The log's word first (it saw the client), the span's where the log says nothing."""
    return log._replace(
        model=log.model or span.model,
        tenant=log.tenant or span.tenant,
        session=span.session if log.session is None else log.session,
        session_source=span.session_source if log.session is None else log.session_source,
        prompt_tokens=_either(log.prompt_tokens, span.prompt_tokens),
        cached_tokens=_either(log.cached_tokens, span.cached_tokens),
        output_tokens=_either(log.output_tokens, span.output_tokens),
        ttft_seconds=_either(log.ttft_seconds, span.ttft_seconds),
        queue_seconds=_either(log.queue_seconds, span.queue_seconds),
        duration_seconds=_either(log.duration_seconds, span.duration_seconds),
        instance=log.instance or span.instance,
    )


def _either(first: Number, second: Number) -> Number:
    return second if first is None else first


class Joiner:
    """A sink for logs (``add_all``) and for spans (``add_spans``) before the table."""

    def __init__(
        self,
        sink: BatchSink,
        *,
        wait_seconds: float = 30.0,
        capacity: int = 20_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._wait = wait_seconds
        self._capacity = capacity
        self._clock = clock
        self._lock = threading.Lock()
        # In order of arrival, so that the oldest stand in front.
        self._logs: dict[int, tuple[float, Event]] = {}
        self._spans: dict[int, tuple[float, Event]] = {}
        self._aliases: dict[int, int] = {}
        self.joined = 0

    def add_all(self, events: Sequence[Event]) -> None:
        """Take in lines of a gateway's log, or what the proxy saw."""
        with self._lock:
            out = [found for event in events if (found := self._met_log(event)) is not None]
            out += self._overdue()
        if out:
            self._sink.add_all(out)

    def add_spans(self, spans: Sequence[tuple[Event, int]]) -> None:
        """Take in spans: each event, and the hash of its id without the engine's own ending."""
        with self._lock:
            out = [found for event, alias in spans if (found := self._met_span(event, alias)) is not None]
            out += self._overdue()
        if out:
            self._sink.add_all(out)

    def settle(self) -> None:
        """Let go of what has waited long enough; call now and then."""
        self.add_all(())

    def flush(self) -> None:
        """Let go of everything."""
        with self._lock:
            out = [event for _, event in (*self._logs.values(), *self._spans.values())]
            self._logs, self._spans, self._aliases = {}, {}, {}
        if out:
            self._sink.add_all(out)

    def _met_log(self, log: Event) -> Event | None:
        if not log.request:
            return log
        key = log.request if log.request in self._spans else self._aliases.get(log.request, 0)
        partner = self._take_span(key)
        if partner is not None:
            self.joined += 1
            return joined(log, partner)
        before = self._logs.pop(log.request, None)  # an id used twice: the earlier goes on alone
        self._logs[log.request] = (self._clock(), log)
        return before[1] if before else None

    def _met_span(self, span: Event, alias: int) -> Event | None:
        if not span.request:
            return span
        partner = self._logs.pop(span.request, None) or self._logs.pop(alias, None)
        if partner is not None:
            self.joined += 1
            return joined(partner[1], span)
        before = self._take_span(span.request)
        self._spans[span.request] = (self._clock(), span)
        if alias:
            self._aliases[alias] = span.request
        return before

    def _take_span(self, key: int) -> Event | None:
        held = self._spans.pop(key, None)
        return held[1] if held else None

    def _overdue(self) -> list[Event]:
        since = self._clock() - self._wait
        out: list[Event] = []
        for waiting in (self._logs, self._spans):
            surplus = len(waiting) - self._capacity
            late = []
            for number, (key, (moment, _)) in enumerate(waiting.items()):
                if moment > since and number >= surplus:
                    break
                late.append(key)
            out.extend(waiting.pop(key)[1] for key in late)
        if len(self._aliases) > 2 * len(self._spans) + 1024:
            self._aliases = {alias: key for alias, key in self._aliases.items() if key in self._spans}
        return out


class JoinedSink:
    """Where the proxy puts events that may have a span: starts and ends are told at once, the event
    itself goes by the joiner."""

    def __init__(self, joiner: Joiner, table: Sink) -> None:
        self._joiner = joiner
        self.began = table.began
        self.ended = table.ended

    def add(self, event: Event) -> None:
        """Take in one finished request."""
        self._joiner.add_all((event,))
