"""What a worker tells its parent: JSON lines over a pipe, gathered and never waited for.

    ["b", TENANT, N]                 N watched requests began
    ["e", [[TENANT, ROW, ID], ...]]  requests ended; ROW are the fields of an ``Event`` in order
    ["c", NAME, LABEL, N]            a counter grew by N
    ["g", NAME, N]                   a gauge stands at N
    ["l", HOST, PORT]                the worker listens

A parent that does not read must not stop the data path: beyond a bound news are dropped and counted.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable

from diag_exporter.sessions.events import Event

__all__ = ["Inbox", "Outbox"]

_WAITING_EVENTS = 20_000
_BATCH_EVENTS = 500
_dump = json.JSONEncoder(separators=(",", ":")).encode


class Outbox:
    """The worker's end. ``descriptor`` does not block; ``flush`` is called a few times a second."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        self._news: list[list[object]] = []
        self._began: Counter[str] = Counter()
        self._ended: list[tuple[str, Event | None, str]] = []
        self._counters: Counter[tuple[str, str]] = Counter()
        self._gauges: dict[str, int] = {}

    def began(self, tenant: str) -> None:
        """A watched request of ``tenant`` is in flight."""
        self._began[tenant] += 1

    def ended(self, tenant: str, event: Event, request_id: str) -> None:
        """It is over. Where the parent lags the event is dropped, but not the fact that it ended."""
        if len(self._ended) < _WAITING_EVENTS:
            self._ended.append((tenant, event, request_id))
        else:
            self._ended.append((tenant, None, ""))
            self.count("dropped", "event")

    def count(self, name: str, label: str) -> None:
        """One more."""
        self._counters[name, label] += 1

    def gauge(self, name: str, value: int) -> None:
        """Told only when it changes."""
        if self._gauges.get(name) != value:
            self._gauges[name] = value
            self._news.append(["g", name, value])

    def listening(self, host: str, port: int) -> None:
        """Said once."""
        self._news.append(["l", host, port])

    def flush(self) -> None:
        """Write what the pipe takes and keep the rest; gather on while the parent lags."""
        if not self._rest:
            self._rest = self._gathered()
        while self._rest:
            try:
                written = os.write(self._descriptor, self._rest)
            except BlockingIOError:
                return
            except OSError:
                # The parent is gone: its end of the other pipe stops the worker too.
                written = len(self._rest)
            self._rest = self._rest[written:]

    def _gathered(self) -> bytes:
        # What began goes first: it may have ended since.
        lines = [_dump(["b", tenant, number]) for tenant, number in self._began.items()]
        self._began.clear()
        for start in range(0, len(self._ended), _BATCH_EVENTS):
            lines.append(_dump(["e", self._ended[start : start + _BATCH_EVENTS]]))
        self._ended.clear()
        lines += [_dump(["c", name, label, number]) for (name, label), number in self._counters.items()]
        self._counters.clear()
        lines += map(_dump, self._news)
        self._news.clear()
        return "".join(f"{line}\n" for line in lines).encode()


class Inbox:
    """The parent's end for one worker: keeps what must be undone when the worker dies."""

    def __init__(
        self,
        began: Callable[[str], None],
        ended: Callable[[str, Event | None, str], None],
        count: Callable[[str, str, int], None],
    ) -> None:
        self.gauges: dict[str, int] = {}
        self.address: tuple[str, int] | None = None
        self._began = began
        self._ended = ended
        self._count = count
        self._in_flight: Counter[str] = Counter()

    def take(self, line: bytes) -> None:
        """One line."""
        kind, *rest = json.loads(line)
        if kind == "b":
            tenant, number = rest
            self._in_flight[tenant] += number
            for _ in range(number):
                self._began(tenant)
        elif kind == "e":
            for tenant, row, request_id in rest[0]:
                self._settle(tenant)
                self._ended(tenant, None if row is None else Event(*row), request_id)
        elif kind == "c":
            self._count(*rest)
        elif kind == "g":
            self.gauges[rest[0]] = rest[1]
        elif kind == "l":
            self.address = (rest[0], rest[1])

    def close(self) -> None:
        """The worker is gone, and with it every request it carried."""
        self.gauges.clear()
        for tenant in list(self._in_flight.elements()):
            self._settle(tenant)
            self._ended(tenant, None, "")

    def _settle(self, tenant: str) -> None:
        self._in_flight[tenant] -= 1
        if not self._in_flight[tenant]:
            del self._in_flight[tenant]
