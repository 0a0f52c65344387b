"""One request from its arrival to its event, and what a worker counts meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from diag_exporter.sessions.events import Event, Status
from diag_exporter.sessions.proxying.asks import UNREAD, Ask
from diag_exporter.sessions.proxying.replies import NoWatch, Watch

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from aiohttp.web import BaseRequest

__all__ = ["Ledger", "Passage", "Teller"]

Side = Literal["", "client", "upstream"]


class Teller(Protocol):
    """Where a worker's news go; see ``wire.Outbox``."""

    def began(self, tenant: str) -> None:
        """A watched request of ``tenant`` is in flight."""

    def ended(self, tenant: str, event: Event, request_id: str) -> None:
        """It is over."""

    def count(self, name: str, label: str) -> None:
        """One more of a counter."""


class Passage:
    """Mutable on purpose: the data path touches it for each piece of an answer.

    ``waits_on`` and ``since`` (monotonic seconds) let one slow check per second find what hangs,
    instead of arming a timer for every piece. ``cut``: why the proxy itself ended the passage."""

    __slots__ = (
        "arrived",
        "ask",
        "cut",
        "path",
        "request",
        "request_id",
        "since",
        "started",
        "status",
        "tenant",
        "upstream",
        "waits_on",
        "watch",
        "watched",
    )

    def __init__(self, request: BaseRequest, path: str, tenant: str, request_id: str, watched: bool) -> None:
        self.request = request
        self.path = path
        self.tenant = tenant
        self.request_id = request_id
        self.watched = watched
        self.arrived = time.time()
        self.started = time.monotonic()
        self.ask: Ask = UNREAD
        self.watch: Watch = NoWatch()
        self.upstream: ClientResponse | None = None
        self.status: Status = "error"
        self.waits_on: Side = ""
        self.since = 0.0
        self.cut = ""

    def event(self, now: float, instance: str) -> Event:
        """Counts from the answer's own usage. A stream that ended without it (left, died) tells
        the events it had sent instead: a lower bound, since a piece can carry several tokens."""
        usage = self.watch.usage()
        output = usage.get("output_tokens")
        if output is None and self.status != "ok" and self.watch.first_token is not None:
            output = self.watch.pieces
        first = self.watch.first_token
        return Event(
            ts=self.arrived,
            # A name the engine refused is the client's invention, and no label.
            model=self.ask.model if self.status != "error" or first is not None else "",
            tenant=self.tenant,
            session=self.ask.session,
            session_source=self.ask.session_source,
            prompt_tokens=usage.get("prompt_tokens"),
            cached_tokens=usage.get("cached_tokens"),
            output_tokens=output,
            ttft_seconds=None if first is None else first - self.started,
            duration_seconds=now - self.started,
            # tokens_after_abort stays unknown: the departure is passed on at once, but only the engine
            # knows when it stopped.
            status=self.status,
            instance=instance,
        )


class Ledger:
    """All passages of a worker that are open, and their end."""

    def __init__(self, teller: Teller, instance: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.open: set[Passage] = set()
        self.teller = teller
        self.held_bytes = 0
        self._instance = instance
        self._clock = clock

    def begin(self, passage: Passage) -> None:
        """From here on the passage counts as in flight."""
        self.open.add(passage)
        if passage.watched:
            self.teller.began(passage.tenant)

    def end(self, passage: Passage) -> None:
        """Called exactly once, whatever happened."""
        self.open.discard(passage)
        self.teller.count("requests", passage.status)
        if passage.watched:
            event = passage.event(self._clock(), self._instance)
            self.teller.ended(passage.tenant, event, passage.request_id)
