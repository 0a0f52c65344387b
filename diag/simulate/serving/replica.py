"""One engine: a waiting queue, a running batch, a KV pool, and one step after the other.

Steps in which the batch only decodes and nothing can change are taken together (a *flight*): their times
are a closed form because a step's time is affine in the context, which grows evenly. Whatever needs an
earlier look (an arrival that could be admitted, a client that leaves) cuts the flight at the next step's end.
"""

from __future__ import annotations

from math import sqrt
from typing import Protocol

from diag.simulate.plan import Machine, Settings
from diag.simulate.serving.admission import Admission
from diag.simulate.serving.cost import Pace, StepCost
from diag.simulate.serving.loop import Loop
from diag.simulate.serving.sequences import Phase, Sequence
from diag.simulate.serving.tally import Tally

__all__ = ["Flight", "Listener", "Replica"]


class Listener(Protocol):
    """Who is told what becomes of a sequence."""

    def on_end(self, sequence: Sequence) -> None:
        """It has its whole answer, now."""


class Flight:
    """``steps`` steps under way, the first of ``seconds`` from ``start`` on, each next one ``slope``
    longer. ``gpu_seconds``: of the first in which the GPU works; ``chunks``: what it prefills;
    ``decodes``: whether the batch advances; ``blocked_seconds``: of a hang or a pause within the first."""

    __slots__ = ("blocked_seconds", "chunks", "decodes", "gpu_seconds", "seconds", "slope", "start", "steps")

    def __init__(
        self,
        start: float,
        steps: int,
        cost: tuple[float, float, float],
        chunks: list[tuple[Sequence, int]],
        decodes: bool,
    ) -> None:
        self.start = start
        self.steps = steps
        self.seconds, self.gpu_seconds, self.slope = cost
        self.chunks = chunks
        self.decodes = decodes
        self.blocked_seconds = 0.0

    def span(self, steps: int) -> float:
        """Seconds of the first ``steps`` steps."""
        return steps * self.seconds + self.slope * (steps * (steps - 1)) / 2

    def done_by(self, time: float) -> int:
        """Steps that have ended by ``time``; the last one is left to its own event."""
        elapsed = time - self.start
        if self.steps == 1 or elapsed < self.seconds:
            return 0
        slope, first = self.slope, self.seconds - self.slope / 2
        if slope > 1e-12:
            steps = int((sqrt(first * first + 2.0 * slope * elapsed) - first) / slope)
        else:
            steps = int(elapsed / self.seconds)
        return min(steps, self.steps - 1)


class Replica:
    """A running engine. ``single``: take every step by itself (for tests: the result is the same)."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        settings: Settings,
        loop: Loop,
        listener: Listener,
        *,
        single: bool = False,
    ) -> None:
        self.name = name
        self.machine = machine
        self.loop = loop
        self.listener = listener
        self.tally = Tally()
        self.resident_bytes = 0.0
        self._single = single
        self._pace, self._rate = Pace(), 1.0
        self._version = 0
        self.start(settings)

    def start(self, settings: Settings) -> None:
        """A fresh process with ``settings``: nothing queued, nothing cached."""
        evicted = self.tally.evicted_blocks
        self.settings = settings
        self.work = Admission(settings, self.machine, self.tally)
        self.work.pool.evicted = evicted
        self.cost = StepCost(self.machine, settings)
        self.cost.adopt(self._pace)
        self.flight: Flight | None = None
        self.blocked_until = -1e18
        self._spins = False
        self._version += 1
        self._last_tokens = self.loop.now
        self._late: list[tuple[int, float]] = []
        self._publish()

    # What the outside does to it

    def enqueue(self, sequence: Sequence) -> None:
        """``sequence`` reaches the scheduler, now."""
        sequence.phase = Phase.WAITING
        self.work.push(sequence)
        self._look(sequence)

    def resume(self, sequence: Sequence) -> None:
        """A sequence that waited for KV from elsewhere may go on."""
        self.work.unfetch(sequence)
        self._look(sequence)

    def _look(self, sequence: Sequence) -> None:
        flight = self.flight
        if flight is None:
            self._begin()
        elif flight.steps > 1 and self.work.may_admit(sequence):
            self._cut()

    def abort(self, sequence: Sequence) -> None:
        """Its client left and the engine noticed."""
        if sequence.phase is Phase.GONE:
            return
        self._commit(self.loop.now)
        # The batch is smaller from now on, or somebody else is next.
        if self.flight is not None and (sequence.phase is Phase.DECODE or self.work.waiting):
            self._cut()
        self.work.remove(sequence)
        self.tally.finished_abort += 1
        if self.flight is None:
            self._begin()

    @property
    def spinning(self) -> bool:
        """Whether its GPU looks busy for nothing."""
        return self._spins and self.loop.now < self.blocked_until

    def given_tokens(self, sequence: Sequence) -> int:
        """Answer tokens of ``sequence`` so far."""
        self._commit(self.loop.now)
        if sequence.phase is not Phase.DECODE:
            return sequence.generated
        return sequence.answer_tokens - max(sequence.finish_at - self.work.decoders.clock, 0)

    def block(self, seconds: float, *, spins: bool = False) -> None:
        """No step ends for ``seconds`` from now on; ``spins``: its GPU looks busy meanwhile."""
        now = self.loop.now
        self.blocked_until = max(self.blocked_until, now + seconds)
        self._spins = spins
        if self.flight is not None:
            self._commit(now)
            self.flight.seconds += seconds
            self.flight.blocked_seconds += seconds
            self._cut()

    def adopt(self, pace: Pace, rate: float = 1.0) -> None:
        """A new pace for the steps from the next one on; ``rate``: tokens that a decode step gives."""
        if pace.near(self._pace) and abs(rate - self._rate) < 1e-3:
            return
        self._pace, self._rate = pace, rate
        self.cost.adopt(pace)
        if self.flight is not None and self.flight.steps > 1:
            self._cut()

    def leak(self, blocks: int) -> None:
        """``blocks`` blocks stay taken for ever; never those that the step under way needs."""
        self._commit(self.loop.now)
        if self.flight is not None and self.flight.steps > 1:
            self._cut()
        self.work.leak(blocks)

    def stir(self) -> None:
        """Look again: what the outside holds back may have changed."""
        if self.flight is None:
            self._begin()
        elif self.flight.steps > 1 and self.work.waiting:
            self._cut()

    def lose_all(self) -> list[Sequence]:
        """The process dies: everything inside is gone."""
        self._commit(self.loop.now)
        self.tally.evicted_blocks = self.work.pool.evicted
        lost = self.work.everybody()
        for sequence in lost:
            sequence.phase = Phase.GONE
        self.flight = None
        self._version += 1
        self.tally.finished_error += len(lost)
        return lost

    def busy_seconds(self) -> float:
        """GPU time so far, the step under way included."""
        self._commit(self.loop.now)
        flight = self.flight
        if flight is None:
            return self.tally.busy_seconds
        worked = self.loop.now - flight.start
        share = flight.gpu_seconds / max(flight.seconds - flight.blocked_seconds, 1e-9)
        return self.tally.busy_seconds + min(worked * share, flight.gpu_seconds)

    def scrape(self) -> None:
        """Write what a scrape finds now."""
        self._commit(self.loop.now)
        running, capacity, deferred, used = self._published
        ratio = used / max(self.work.pool.size, 1)
        self.tally.evicted_blocks = self.work.pool.evicted
        self.tally.scrape((running, capacity + deferred, capacity, deferred, ratio, self.resident_bytes))

    # Steps

    def _begin(self) -> None:
        """Start the next step, if there is anything to do and nothing in the way."""
        now = self.loop.now
        if now < self.blocked_until:
            self._version += 1
            self.loop.at(self.blocked_until, self._wake, self._version)
            return
        work = self.work
        work.decoders.rate = self._rate
        chunks, added = work.schedule(now)
        for time in work.take_late():
            self._late.append((1, time))
        decoders = work.decoders
        decodes = decoders.count > 0 and (self.settings.chunked_prefill or not chunks)
        if not chunks and not decodes:
            self.flight = None
            if work.waiting or added:
                self._publish()
            return
        steps = 1
        if not (chunks or added or self._single or work.may_change()):
            steps = decoders.steps_within(work.pool.available, decoders.steps_to_finish())
        pairs = 0.0
        tokens = 0
        for sequence, chunk in chunks:
            tokens += chunk
            pairs += chunk * (sequence.computed + (chunk + 1) / 2)
        batch, context = (decoders.count, decoders.context) if decodes else (0, 0)
        seconds, gpu, slope = self.cost.step(tokens, pairs, batch, context)
        cost = (seconds + added, gpu, slope * batch * decoders.rate)
        self.flight = Flight(now, steps, cost, chunks, decodes)
        self._arm()

    def _wake(self, version: int) -> None:
        if version == self._version and self.flight is None:
            self._begin()

    def _arm(self) -> None:
        flight = self.flight
        assert flight is not None
        self._version += 1
        self.loop.at(flight.start + flight.span(flight.steps), self._end, self._version)

    def _cut(self) -> None:
        """Let the flight end with the step under way."""
        self._commit(self.loop.now)
        flight = self.flight
        assert flight is not None
        flight.steps = 1
        self._arm()

    def _commit(self, now: float) -> None:
        """Book the steps that have ended by ``now``."""
        flight = self.flight
        if flight is None or (steps := flight.done_by(now)) == 0:
            return
        self._book(flight, steps)
        flight.start += flight.span(steps)
        flight.seconds += flight.slope * steps
        flight.gpu_seconds += flight.slope * steps
        flight.steps -= steps
        self._publish()

    def _book(self, flight: Flight, steps: int) -> None:
        """Count ``steps`` steps of ``flight``, its first ones."""
        tally, work = self.tally, self.work
        tally.steps += steps
        growth = flight.slope * (steps * (steps - 1)) / 2
        tally.busy_seconds += steps * flight.gpu_seconds + growth
        tally.cpu_seconds += flight.span(steps) - flight.blocked_seconds
        tokens = sum(chunk for _, chunk in flight.chunks)
        batch = work.decoders.count if flight.decodes else 0
        given = 0
        if batch:
            given = work.decode(steps)
            tally.generation_tokens += given * batch
            if (drafted := self.settings.speculative_tokens) > 0:
                tally.draft_tokens += drafted * steps * batch
                tally.accepted_tokens += (given - steps) * batch
            self._observe_gaps(flight, steps, batch)
        tally.histograms["step_tokens"].add(tokens + given * batch / steps, steps)

    def _observe_gaps(self, flight: Flight, steps: int, batch: int) -> None:
        """Times between tokens: one observation a sequence and step, counted from its token before."""
        gaps = self.tally.histograms["inter_token_seconds"]
        end = flight.start + flight.seconds
        for count, time in self._late:
            count = min(count, batch)
            batch -= count
            gaps.add(end - time, count)
        if batch:
            gaps.add(end - self._last_tokens, batch)
        if steps > 1:
            full = batch + sum(count for count, _ in self._late)
            gaps.add_run(flight.seconds + flight.slope, flight.slope, steps - 1, full)
        self._late.clear()
        self._last_tokens = flight.start + flight.span(steps)

    def _end(self, version: int) -> None:
        if version != self._version:
            return
        flight = self.flight
        assert flight is not None
        now = self.loop.now
        self._book(flight, flight.steps)
        self.flight = None
        if flight.decodes:
            for sequence in self.work.finished():
                self._finish(sequence)
        if flight.chunks:
            self._end_chunks(flight, now)
        self._publish()
        self._begin()

    def _end_chunks(self, flight: Flight, now: float) -> None:
        decoders = self.work.decoders
        joined, before = 0, decoders.count
        for sequence, chunk in flight.chunks:
            if sequence.phase is not Phase.PREFILL or not self.work.progress(sequence, chunk):
                continue
            self._token(sequence, now)
            if sequence.left_tokens <= 0:
                self.work.remove(sequence)
                self._finish(sequence)
            else:
                self.work.join(sequence)
                joined += 1
        if not joined:
            return
        if before == 0:
            self._late.clear()
            self._last_tokens = now
        elif not flight.decodes:
            self._late.append((joined, now))

    def _token(self, sequence: Sequence, now: float) -> None:
        """The token that ends a prefill: an answer's first, or the next after a recompute."""
        tally, call = self.tally, sequence.call
        sequence.generated += 1
        tally.generation_tokens += 1
        if sequence.generated > 1:
            tally.histograms["inter_token_seconds"].add(now - sequence.last_token)
            return
        call.first_token = now
        call.cached_tokens = sequence.cached + sequence.external
        tally.prompt_tokens += sequence.prompt
        tally.cached_tokens += sequence.cached
        tally.external_tokens += sequence.external
        tally.computed_tokens += sequence.prompt - sequence.cached - sequence.external
        tally.histograms["ttft_seconds"].add(now - call.arrived)

    def _finish(self, sequence: Sequence) -> None:
        """A whole answer."""
        now, tally, call = self.loop.now, self.tally, sequence.call
        call.ended = now
        if sequence.watched:
            call.output_tokens = sequence.answer_tokens
        if sequence.cut:
            tally.finished_length += 1
        else:
            tally.finished_stop += 1
        histograms = tally.histograms
        histograms["e2e_seconds"].add(now - call.arrived)
        histograms["queue_seconds"].add(call.scheduled - call.queued)
        histograms["prefill_seconds"].add(call.first_token - call.scheduled)
        histograms["decode_seconds"].add(now - call.first_token)
        histograms["prompt_tokens"].add(sequence.prompt)
        histograms["computed_tokens"].add(sequence.prompt - sequence.cached - sequence.external)
        histograms["output_tokens"].add(sequence.answer_tokens)
        self.listener.on_end(sequence)

    def _publish(self) -> None:
        """What the gauges say until the next step ends."""
        work = self.work
        self._published = len(work.running), work.waiting, work.deferred, work.pool.used
