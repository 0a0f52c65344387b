"""Between clients and engines: who gets a request, how long that takes, and how it ends for its client."""

from __future__ import annotations

from collections import deque
from math import isnan, nan

import numpy as np

from diag.simulate.observed import Call
from diag.simulate.plan import Gateway
from diag.simulate.serving.asks import Ask
from diag.simulate.serving.loop import Loop
from diag.simulate.serving.reading import reader, stepped
from diag.simulate.serving.routing import Router
from diag.simulate.serving.sequences import Sequence
from diag.simulate.serving.server import Server

__all__ = ["RunningGateway"]

_REFUSED_SECONDS = 0.002


class RunningGateway:
    """The gateway over ``servers``; tells an ask's owner when it is over."""

    def __init__(self, plan: Gateway, loop: Loop, rng: np.random.Generator) -> None:
        self.plan = plan
        self.loop = loop
        self.servers: list[Server] = []
        self.in_flight = 0
        self.timeouts = 0
        self.rows: list[tuple[int, int, int]] = []
        self._rng = rng
        self._pool: deque[Ask] = deque()
        self._delay = reader(plan.delay_seconds)
        self._stray = reader(plan.error_ratio)
        self._limit = stepped(plan.max_in_flight, plan.max_in_flight_steps)
        self._timeout = stepped(plan.timeout_seconds, plan.timeout_steps)
        self._router = Router(plan.balancing, plan.affinity_weight)
        for time, _ in plan.max_in_flight_steps:
            loop.at(time, self._pump)

    # The way in

    def send(self, ask: Ask) -> None:
        """A client sends ``ask``, now."""
        if self.plan.delay_outside:
            self.loop.at(self.loop.now + self._drawn_delay(), self._receive, ask)
        else:
            self._receive(ask)

    def _drawn_delay(self) -> float:
        return self._delay(self.loop.now) * max(
            1.0 + self.plan.jitter_ratio * float(self._rng.standard_normal()), 0.1
        )

    def _receive(self, ask: Ask) -> None:
        if ask.closed:
            return
        now = self.loop.now
        ask.call.reached = now
        timeout = self._timeout(now)
        if timeout > 0:
            self.loop.at(now + timeout, self._time_out, ask)
        self._pool.append(ask)
        self._pump()

    def _pump(self) -> None:
        """Pass on who waits in the pool as long as it has room."""
        limit = self._limit(self.loop.now)
        while self._pool and (limit <= 0 or self.in_flight < limit):
            ask = self._pool.popleft()
            if not ask.closed:
                self.in_flight += 1
                ask.pooled = True
                self._forward(ask, None)

    def _forward(self, ask: Ask, failed: Server | None) -> None:
        now, call = self.loop.now, ask.call
        if self._stray(now) > 0 and self._rng.random() < self._stray(now):
            self._fail(ask, None, 502)
            return
        server = self._router.pick(ask, self.servers, failed, now)
        if server is None:
            self._close(ask, "error", 503, now)
            return
        call.gateway_seconds = now - call.reached
        call.replica = server.name
        call.connect_seconds = 0.0 if self.plan.delay_outside else self._drawn_delay()
        ask.server = server
        server.in_flight += 1
        way = call.connect_seconds + server.running_host.crossing_seconds(now, 3.0)
        self.loop.at(now + way, self._arrive, ask, server)

    def _arrive(self, ask: Ask, server: Server) -> None:
        if ask.closed:
            return
        if server.down:
            self.loop.at(self.loop.now + _REFUSED_SECONDS, self._fail, ask, server, 502)
        elif ask.call.prompt_tokens >= server.replica.settings.max_model_len_tokens:
            server.replica.tally.http_4xx += 1
            self._close(ask, "error", 400, self.loop.now)
        else:
            server.accept(ask, ask.call)

    # How it ends

    def finished(self, server: Server, ask: Ask | None, sequence: Sequence) -> None:
        """``server`` has the whole answer of ``sequence``, now; ``ask``: whose that is."""
        if ask is not None and not ask.closed:
            back = server.running_host.crossing_seconds(self.loop.now, 4.0 + sequence.answer_tokens)
            self._close(ask, "ok", 200, self.loop.now + back)

    def lose(self, asks: list[Ask]) -> None:
        """The process that had ``asks`` died, now."""
        for ask in asks:
            if not ask.closed:
                self._fail(ask, ask.server, 502)

    def _fail(self, ask: Ask, server: Server | None, status: int) -> None:
        """A try came to nothing; the gateway tries again while the client has seen nothing of it."""
        if ask.closed:
            return
        call = ask.call
        if ask.gateway_tries < self.plan.retries and isnan(call.first_token):
            ask.gateway_tries += 1
            call.arrived = call.queued = call.scheduled = nan
            call.cached_tokens = 0
            self._let_go(ask)
            self._forward(ask, server)
            return
        self._close(ask, "error", status, self.loop.now)

    def _time_out(self, ask: Ask) -> None:
        if not ask.closed:
            self.timeouts += 1
            self._drop(ask)
            self._close(ask, "error", 504, self.loop.now)

    def leave(self, ask: Ask) -> None:
        """The client gives ``ask`` up, now."""
        if not ask.closed:
            self._drop(ask)
            self._close(ask, "aborted", 0, self.loop.now)

    def _drop(self, ask: Ask) -> None:
        """Nobody waits for ``ask`` any more: tell the engine, if it listens."""
        sequence, server = ask.sequence, ask.server
        if sequence is not None and server is not None and sequence in server.asks:
            ask.call.output_tokens = server.given_tokens(sequence)
            server.leave(sequence, seen=ask.leave_seen)

    def _let_go(self, ask: Ask) -> None:
        if ask.server is not None:
            ask.server.in_flight -= 1
            ask.server, ask.sequence = None, None

    def _close(self, ask: Ask, status: str, http_status: int, closed: float) -> None:
        call = ask.call
        call.status, call.http_status, call.closed = status, http_status, closed
        ask.closed = True
        if not isnan(call.first_token):
            self.answer(call, ask.server)
        self._let_go(ask)
        if ask.pooled:
            self.in_flight -= 1
            ask.pooled = False
            self._pump()
        if ask.owner is not None:
            ask.owner.over(ask)

    def answer(self, call: Call, server: Server | None) -> None:
        """When the client of ``call`` saw its first token."""
        back = 0.0 if server is None else server.running_host.crossing_seconds(call.first_token, 1.0)
        call.answered = call.first_token + back
        if call.closed < call.answered:
            if call.status == "ok":
                call.closed = call.answered
            else:
                call.answered = nan

    def scrape(self) -> None:
        """Write what a look at the gateway finds now."""
        waiting = sum(not ask.closed for ask in self._pool)
        self.rows.append((self.in_flight, waiting, self.timeouts))
