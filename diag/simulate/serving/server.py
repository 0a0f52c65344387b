"""A replica with what surrounds it: its front, its cards, its host, and what befalls the process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diag.simulate import plan as plans
from diag.simulate.observed import Call
from diag.simulate.serving.asks import Ask
from diag.simulate.serving.cards import RunningCard
from diag.simulate.serving.cost import Pace
from diag.simulate.serving.hosts import RunningHost
from diag.simulate.serving.loop import Loop
from diag.simulate.serving.outside import Outside
from diag.simulate.serving.reading import integrate, reader
from diag.simulate.serving.replica import Replica
from diag.simulate.serving.sequences import Phase, Sequence

__all__ = ["Server"]

_DECODE_CLOCK_EXPONENT = 0.8  # assumed: decoding is bound by memory more than by the clock
_DECODE_COLLECTIVE_RATIO = 0.25
_PREFILL_COLLECTIVE_RATIO = 0.15
_TOKENISE_SECONDS = 1e-6
_IDLE_CPUS = 0.3
_ENGINE_CPUS = 1.5
_WORKER_CPUS = 0.5
_RESIDENT_BYTES = 9e9


class Server:
    """One engine as the gateway knows it. ``tell``: of each whole answer; ``down``: its process is not
    there; ``down_since``: seconds."""

    def __init__(
        self, plan: plans.Replica, loop: Loop, tell: Callable[[Server, Ask | None, Sequence], None],
        host: RunningHost, cards: list[RunningCard], rng: np.random.Generator, *, single: bool = False,
    ) -> None:  # fmt: skip
        self.name = plan.name
        self.host = plan.host
        self.plan = plan
        self.loop = loop
        self.running_host = host
        self.cards = cards
        self.replica = Replica(plan.name, plan.machine, plan.settings, loop, self, single=single)
        self.outside = Outside()
        self.asks: dict[Sequence, Ask] = {}
        self.in_flight = 0
        self.down = False
        self.down_since = np.inf
        self.link_ratio = 1.0
        self._tell = tell
        self._rng = rng
        self._front_free = loop.now
        self._busy = 0.0
        self._leaked = 0.0
        self._front = reader(plan.front_seconds)
        self._factor = reader(plan.step_factor)
        self._added = reader(plan.step_seconds)
        self._eager = reader(plan.eager)
        self._deferred = reader(plan.deferred)
        self._grammar = reader(plan.grammar_seconds)
        self._leak_rate = reader(plan.leak_blocks_per_second)
        self._acceptance = reader(plan.acceptance_ratio)
        self.meet(self.outside)

    def meet(self, outside: Outside) -> None:
        """``outside`` acts on the scheduler from now on."""
        self.outside = outside
        self.replica.work.outside = outside
        self._refresh()

    # Requests

    def accept(self, ask: Ask, call: Call) -> None:
        """``ask`` reaches the API server, now."""
        now = self.loop.now
        call.arrived = now
        sequence = Sequence(call, ask.answer_tokens, ask.question)
        sequence.head_key, sequence.session_key = ask.head_key, ask.session_key
        room = self.replica.settings.max_model_len_tokens - call.prompt_tokens
        sequence.priority, sequence.cut = ask.priority, ask.cut or ask.answer_tokens > room
        sequence.answer_tokens = min(ask.answer_tokens, room)
        ask.sequence, ask.server = sequence, self
        self.asks[sequence] = ask
        work = self._front(now) * float(self._rng.uniform(0.6, 1.4)) + call.prompt_tokens * _TOKENISE_SECONDS
        self.loop.at(self.occupy_front(work * self.running_host.burden.front_factor), self._queue, sequence)

    def on_end(self, sequence: Sequence) -> None:
        """The engine has the whole answer, now."""
        self.replica.tally.http_2xx += 1
        self._tell(self, self.forget(sequence), sequence)

    def occupy_front(self, seconds: float) -> float:
        """When the front, one after the other, has done ``seconds`` of work that comes now."""
        self._front_free = max(self._front_free, self.loop.now) + seconds
        return self._front_free

    def _queue(self, sequence: Sequence) -> None:
        if sequence.phase is Phase.FRONT:
            sequence.call.queued = self.loop.now
            self.replica.enqueue(sequence)

    def leave(self, sequence: Sequence, *, seen: bool) -> None:
        """The client of ``sequence`` went away; the engine may not notice."""
        self.replica.tally.client_aborts += 1
        sequence.watched = False
        self._leaked += self.plan.leak_blocks_per_abort
        self._leak()
        if seen:
            self.replica.abort(sequence)
            self.replica.tally.http_2xx += 1
            self.forget(sequence)

    def given_tokens(self, sequence: Sequence) -> int:
        """Answer tokens that the client of ``sequence`` has by now."""
        return self.replica.given_tokens(sequence)

    def forget(self, sequence: Sequence) -> Ask | None:
        """``sequence`` is no more; the ask that it belonged to."""
        return self.asks.pop(sequence, None)

    def held_tokens(self, head_key: str, session_key: str) -> int:
        """Tokens of that prefix in its cache."""
        chains, size = self.replica.work.pool.chains, self.replica.settings.block_size_tokens
        head = chains.get(head_key)
        own = chains.get(session_key)
        return size * ((head.blocks if head else 0) + (own.blocks if own else 0))

    # What befalls it

    def pause(self, seconds: float) -> None:
        """Nothing happens in the process for ``seconds``."""
        self._front_free = max(self._front_free, self.loop.now) + seconds
        self.replica.block(seconds)

    def hang(self, seconds: float) -> None:
        """No step ends for ``seconds``; the front goes on."""
        self.replica.block(seconds, spins=self.plan.hang_spins)

    def stop(self) -> list[Ask]:
        """The process ends; what was inside."""
        lost = self.replica.lose_all()
        for sequence in self.asks:
            sequence.phase = Phase.GONE
        self.replica.tally.finished_error += len(self.asks) - len(lost)
        asks, self.asks = list(self.asks.values()), {}
        self.down, self.down_since = True, self.loop.now
        return asks

    def start(self, settings: plans.Settings | None) -> None:
        """A fresh process, with the settings it had if None."""
        self.down, self.down_since = False, np.inf
        self._front_free = self.loop.now
        self._leaked = 0.0
        self.replica.start(settings or self.replica.settings)
        self.meet(self.outside)

    # Ticks

    def busy_ratio(self, seconds: float) -> float:
        """Share of the last ``seconds`` in which its GPUs worked; asks once a tick."""
        busy = self.replica.busy_seconds()
        ratio = (busy - self._busy) / seconds
        self._busy = busy
        return min(max(ratio, 0.0), 1.0)

    def spins(self) -> bool:
        """Whether its GPUs look busy for nothing."""
        return self.replica.spinning

    def cpus(self, busy_ratio: float) -> float:
        """CPUs that it needs."""
        if self.down:
            return 0.0
        return _IDLE_CPUS + busy_ratio * (_ENGINE_CPUS + _WORKER_CPUS * self.replica.settings.tensor_parallel)

    def tick(self, seconds: float) -> None:
        """Take the pace that cards and host leave; ``seconds`` since the last tick."""
        now = self.loop.now
        if not self.down:
            self._leaked += integrate(self._leak_rate, now - seconds, now)
            self._leak()
        held = self.outside.held_slots
        self._refresh()
        if self.outside.held_slots != held:
            self.replica.stir()

    def _refresh(self) -> None:
        now, replica = self.loop.now, self.replica
        self.outside.held_slots = round(self._deferred(now))
        self.outside.grammar_seconds = self._grammar(now)
        drafted = replica.settings.speculative_tokens
        replica.adopt(self._pace(now), 1.0 + self._acceptance(now) * drafted)
        leak = self.running_host.engine_leak_bytes(now)
        replica.resident_bytes = _RESIDENT_BYTES + leak

    def _pace(self, now: float) -> Pace:
        burden, factor = self.running_host.burden, self._factor(now)
        prefill = decode = 1.0
        self.link_ratio = 1.0
        for card in self.cards:  # the slowest holds up the others
            slow = card.slow_factor / (1.0 - card.foreign_ratio)
            prefill = max(prefill, slow / card.clock_ratio)
            decode = max(decode, slow / card.clock_ratio**_DECODE_CLOCK_EXPONENT)
            self.link_ratio = min(self.link_ratio, card.link_ratio)
        if self.replica.settings.tensor_parallel > 1:
            lost = 1.0 / self.link_ratio - 1.0
            prefill *= 1.0 + _PREFILL_COLLECTIVE_RATIO * lost
            decode *= 1.0 + _DECODE_COLLECTIVE_RATIO * lost
        added = self._added(now) + burden.step_seconds
        return Pace(prefill * factor, decode * factor, self._eager(now) >= 0.5, burden.stretch, added)

    def _leak(self) -> None:
        blocks = int(self._leaked)
        if blocks > 0:
            self._leaked -= blocks
            self.replica.leak(blocks)

    def scrape(self) -> None:
        """Write what a scrape finds now."""
        self.replica.scrape()
