"""What a worker tells its parent: JSON lines over a pipe, gathered and never waited for.

    ["b", TENANT]                    a watched request began
    ["e", TENANT, ROW, REQUEST_ID]   it ended; ROW are the fields of an ``Event`` in order
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

_WAITING_BYTES = 4 * 2**20
_dump = json.JSONEncoder(separators=(",", ":")).encode


class Outbox:
    """The worker's end. ``descriptor`` does not block; ``flush`` is called a few times a second."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._lines: list[str] = []
        self._rest = b""
        self._bytes = 0
        self._counters: Counter[tuple[str, str]] = Counter()
        self._gauges: dict[str, int] = {}

    def began(self, tenant: str) -> None:
        """A watched request of ``tenant`` is in flight."""
        self._add(["b", tenant], vital=True)

    def ended(self, tenant: str, event: Event, request_id: str) -> None:
        """It is over. Where the parent lags the event is dropped, but not the fact that it ended."""
        if not self._add(["e", tenant, event, request_id]):
            self.count("dropped", "event")
            self._add(["e", tenant, None, ""], vital=True)

    def count(self, name: str, label: str) -> None:
        """One more."""
        self._counters[name, label] += 1

    def gauge(self, name: str, value: int) -> None:
        """Told only when it changes."""
        if self._gauges.get(name) != value:
            self._gauges[name] = value
            self._add(["g", name, value], vital=True)

    def listening(self, host: str, port: int) -> None:
        """Said once."""
        self._add(["l", host, port], vital=True)

    def flush(self) -> None:
        """Write what the pipe takes; keep the rest."""
        if self._bytes < _WAITING_BYTES:
            for (name, label), number in self._counters.items():
                self._add(["c", name, label, number], vital=True)
            self._counters.clear()
        if self._lines:
            self._rest += ("\n".join(self._lines) + "\n").encode()
            self._lines.clear()
        while self._rest:
            try:
                written = os.write(self._descriptor, self._rest)
            except BlockingIOError:
                break
            except OSError:
                # The parent is gone: its end of the pipe stops the worker too.
                written = len(self._rest)
            self._rest = self._rest[written:]
        self._bytes = len(self._rest)

    def _add(self, news: list[object], vital: bool = False) -> bool:
        if self._bytes > _WAITING_BYTES and not vital:
            return False
        line = _dump(news)
        self._lines.append(line)
        self._bytes += len(line)
        return True


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
            self._in_flight[rest[0]] += 1
            self._began(rest[0])
        elif kind == "e":
            tenant, row, request_id = rest
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
