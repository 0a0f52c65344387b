"""Asks one engine, slowly, in a thread of its own: a server that hangs holds up nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from diag_exporter.engine.facts import Facts, from_log, merged
from diag_exporter.engine.http import Address, Reply, Unreachable, get
from diag_exporter.engine.lengths import learn_max_length
from diag_exporter.engine.pages import metrics_facts, models_facts, server_info_facts, version_facts
from diag_exporter.engine.process import find_listener, process_facts
from diag_exporter.sessions.feeds.engine_log import EngineLog

__all__ = ["FAILURES", "Poller", "Reading"]

FAILURES = ("refused", "timeout", "broken", "status")
_LOOPBACK = ("localhost", "::1")
_INFO_PATHS = ("/server_info?config_format=json", "/get_server_info")
_FORGET_SECONDS = 600.0

_NOTHING = Facts()


@dataclass(frozen=True, slots=True)
class Reading:
    """What the last polls found. ``at``: monotonic seconds of the last poll; ``health_seconds``: of the
    last one that was answered well, None when it was not; ``facts_time``: unix seconds."""

    at: float
    up: bool
    health_seconds: float | None = None
    facts: Facts = _NOTHING
    facts_time: float | None = None
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURES, 0))


class Poller:
    """Health every ``health_seconds``; facts every ``facts_seconds``, and when the engine comes back."""

    def __init__(
        self,
        address: Address,
        *,
        token: Callable[[], str] = lambda: "",
        log: EngineLog | None = None,
        health_seconds: float = 10.0,
        facts_seconds: float = 60.0,
        time_out: float = 5.0,
    ) -> None:
        self.address = address
        self.log = log
        self._token = token
        self._intervals = (health_seconds, facts_seconds)
        self._time_out = time_out
        self._reading: Reading | None = None
        self._facts_at = -facts_seconds
        self._up_at = time.monotonic()
        self._pid: int | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; more than once does no harm."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"ask-{self.address.name}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop asking."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(1)  # it may wait for an answer; as a daemon it holds up nothing
        learn_max_length(self.address.name, {})

    def reading(self) -> Reading | None:
        """The newest reading; None before the first."""
        return self._reading

    def poll(self) -> None:
        """One round, in the caller's thread."""
        before = self._reading
        up, seconds, failure = self._health()
        now = time.monotonic()
        failures = dict(before.failures) if before else dict.fromkeys(FAILURES, 0)
        if failure:
            failures[failure] += 1
        facts, facts_time = (before.facts, before.facts_time) if before else (_NOTHING, None)
        if up:
            back = before is None or not before.up
            self._up_at = now
            if back or now - self._facts_at >= self._intervals[1]:
                facts, facts_time = merged(self._facts()), time.time()
                self._facts_at = now
                learn_max_length(self.address.name, dict(facts.max_lengths))
        elif now - self._up_at > _FORGET_SECONDS:
            # What an engine that is long gone once was would only mislead.
            facts, facts_time = _NOTHING, None
            learn_max_length(self.address.name, {})
        self._reading = Reading(now, up, seconds, facts, facts_time, failures)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.poll()
            self._stopping.wait(self._intervals[0])

    def _health(self) -> tuple[bool, float | None, str]:
        try:
            reply = get(self.address, "/health", seconds=self._time_out)
        except Unreachable as error:
            return False, None, error.reason
        # A server without this path lives, too.
        if reply.status < 300 or reply.status in (401, 403, 404, 405):
            return True, reply.seconds, ""
        return False, None, "status"

    def _facts(self) -> Iterator[Facts]:
        """By trust: what the engine measured, what it says of itself, what it printed, how it was called."""
        metrics = self._page("/metrics", metrics_facts)
        models = self._page("/v1/models", models_facts)
        infos = list(self._server_info())
        # All names stand in the list of models; without the API key only one is told, by /metrics.
        yield from (replace(metrics, models=()), models, self._page("/version", version_facts), *infos)
        yield Facts(models=metrics.models)
        if self.log is not None:
            yield from_log(self.log.facts())
        if self.address.host in _LOOPBACK or self.address.host.startswith("127."):
            yield self._process()

    def _process(self) -> Facts:
        """Looking through all processes is dear: only when the one found last is gone."""
        facts = process_facts(self._pid) if self._pid is not None else _NOTHING
        if facts == _NOTHING:
            self._pid = find_listener(self.address.port)
            facts = process_facts(self._pid) if self._pid is not None else _NOTHING
        return facts

    def _server_info(self) -> Iterator[Facts]:
        for path in _INFO_PATHS:
            facts = self._page(path, server_info_facts)
            if facts != _NOTHING:
                yield facts
                return

    def _page(self, path: str, read: Callable[[bytes], Facts]) -> Facts:
        try:
            reply: Reply = get(self.address, path, token=self._token(), seconds=self._time_out)
        except Unreachable:
            return _NOTHING
        return read(reply.body) if reply.status == 200 else _NOTHING
