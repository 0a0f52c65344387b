"""What goes into the next step: decoding first, then prefill within the token budget, then who waits.

After vLLM V1's scheduler (its v1/core/sched/scheduler.py): running work before waiting work, a preemption
when the next step lacks blocks, and no admission in a step that preempted.
"""

from __future__ import annotations

from diag.simulate.plan import Machine, Policy, Preemption, Settings
from diag.simulate.serving.blocks import Pool
from diag.simulate.serving.decoding import Decoders
from diag.simulate.serving.outside import Outside
from diag.simulate.serving.prefixes import Prefixes
from diag.simulate.serving.queueing import queue_of
from diag.simulate.serving.sequences import Phase, Sequence
from diag.simulate.serving.tally import Tally

__all__ = ["Admission"]


class Admission:
    """The scheduler of one replica and everything it keeps count of."""

    def __init__(self, settings: Settings, machine: Machine, tally: Tally) -> None:
        self.settings = settings
        self.pool = Pool(settings.kv_blocks)
        self.decoders = Decoders(settings.block_size_tokens)
        self.prefixes = Prefixes(self.pool, settings.block_size_tokens, settings.prefix_caching)
        self.queue = queue_of(settings.policy)
        self.running: dict[Sequence, None] = {}
        self.prefilling: list[Sequence] = []
        self.fetching: dict[Sequence, None] = {}
        self.ready: list[Sequence] = []
        self.parked: list[Sequence] = []
        self.outside = Outside()
        self._adapters: dict[str, int] = {}
        self._tenants: dict[str, int] = {}
        self._tally = tally
        self._block = settings.block_size_tokens
        self._swap_seconds = machine.kv_bytes_per_token / settings.swap_bytes_per_second
        self._late: list[float] = []
        self._added = 0.0
        self._long_ones = 0
        self._preempted = False

    # Counts

    @property
    def waiting(self) -> int:
        """Sequences that wait for room."""
        return self.queue.count + len(self.ready)

    @property
    def deferred(self) -> int:
        """Waiting for something else: an adapter's slot, KV from elsewhere, or for ever."""
        return len(self.parked) + len(self.fetching) + self.outside.held_slots

    def _limit(self) -> int:
        return self.settings.max_num_seqs - self.outside.held_slots

    def may_admit(self, sequence: Sequence) -> bool:
        """Whether a step's end now could let ``sequence`` in."""
        if len(self.running) >= self._limit():
            return False
        return sequence in self.ready or self.queue.peek() is sequence

    def everybody(self) -> list[Sequence]:
        """All sequences inside."""
        return [*self.running, *self.fetching, *self.ready, *self.parked, *self.queue.drain()]

    # Coming and going

    def push(self, sequence: Sequence) -> None:
        """``sequence`` waits."""
        self.queue.push(sequence)

    def unfetch(self, sequence: Sequence) -> None:
        """What ``sequence`` waited for came, or will not come."""
        if self.fetching.pop(sequence, 0) is None:
            sequence.phase = Phase.WAITING
            self.ready.append(sequence)

    def join(self, sequence: Sequence) -> None:
        """``sequence`` has its prompt and decodes from now on."""
        self.decoders.join(sequence, sequence.target)
        if self.queue.charges:
            self._tenants[sequence.tenant] = self._tenants.get(sequence.tenant, 0) + 1

    def leak(self, blocks: int) -> None:
        """``blocks`` blocks stay taken, as far as the batch's next step leaves them."""
        self.pool.leak(min(blocks, max(self._spare(), 0)))

    def decode(self, steps: int) -> int:
        """Take ``steps`` decode steps; the tokens each sequence got."""
        decoders = self.decoders
        blocks = decoders.growth(decoders.tokens_in(steps))
        if blocks:
            self.pool.take(blocks)
        given = decoders.advance(steps)
        for tenant, count in self._tenants.items():
            self.queue.charge(tenant, 0, count * given)
        return given

    def finished(self) -> list[Sequence]:
        """Take out those that have their whole answer."""
        done = self.decoders.finished()
        for sequence in done:
            over = self.decoders.clock - sequence.finish_at
            self._tally.generation_tokens -= over
            self._tally.accepted_tokens -= over
            self.remove(sequence)
        return done

    def progress(self, sequence: Sequence, chunk: int) -> bool:
        """``chunk`` more tokens are computed; whether that was the last of the prompt."""
        sequence.computed += chunk
        self._tally.prefilled_tokens += chunk
        self.prefixes.progress(sequence)
        if sequence.computed < sequence.target:
            return False
        self.prefilling.remove(sequence)
        return True

    def remove(self, sequence: Sequence) -> None:
        """``sequence`` is over: its slot and its blocks are free."""
        phase = sequence.phase
        if phase is Phase.DECODE:
            self._leave_batch(sequence, Phase.GONE)
            return
        sequence.phase = Phase.GONE
        if phase is Phase.WAITING:
            self._leave_queue(sequence)
        elif phase is Phase.FETCHING:
            del self.fetching[sequence]
            self.prefixes.release(sequence, sequence.allocated, sequence.computed)
        elif phase is Phase.PREFILL:
            if sequence in self.prefilling:
                self.prefilling.remove(sequence)
            self._leave_slot(sequence)
            self.prefixes.release(sequence, sequence.allocated, sequence.computed)

    def _leave_queue(self, sequence: Sequence) -> None:
        if sequence in self.ready:
            self.ready.remove(sequence)
            self.prefixes.release(sequence, sequence.allocated, sequence.computed)
        elif sequence in self.parked:
            self.parked.remove(sequence)
        else:
            self.queue.leave(sequence)

    def _leave_batch(self, sequence: Sequence, phase: Phase) -> None:
        context = self.decoders.leave(sequence, phase)
        if self.queue.charges:
            self._tenants[sequence.tenant] -= 1
        self._leave_slot(sequence)
        self.prefixes.release(sequence, context, context)
        sequence.computed = context

    def _leave_slot(self, sequence: Sequence) -> None:
        del self.running[sequence]
        if sequence.adapter:
            self._adapters[sequence.adapter] -= 1
            if self._adapters[sequence.adapter] == 0:
                del self._adapters[sequence.adapter]
                self._unpark("")

    def _unpark(self, adapter: str) -> None:
        """Let those wait again whose adapter may run now ("": any)."""
        chosen = [sequence for sequence in self.parked if adapter in ("", sequence.adapter)]
        self.parked = [sequence for sequence in self.parked if sequence not in chosen]
        for sequence in chosen:
            self.queue.push(sequence)

    # The next step

    def schedule(self, now: float) -> tuple[list[tuple[Sequence, int]], float]:
        """What to prefill in the step that begins at ``now``, as (sequence, tokens), and the seconds by which
        swaps and grammars make it longer."""
        self._added, self._long_ones = 0.0, 0
        preempted = self._make_room(now)
        budget = self.settings.max_num_batched_tokens
        if self.settings.chunked_prefill:
            budget -= self.decoders.count * (1 + self.settings.speculative_tokens)
        chunks: list[tuple[Sequence, int]] = []
        if self.prefilling:
            budget, again = self._continue_prefills(chunks, budget, now)
            preempted = preempted or again
        # A batch that had to go altogether may come back at once.
        self._preempted = preempted
        empty = not chunks and not self.decoders.count
        if (empty or not preempted) and (self.queue.count or self.ready):
            self._admit(chunks, budget, now)
        return chunks, self._added

    def may_change(self) -> bool:
        """Whether the next step could admit somebody though nobody comes or goes: after a preemption, or
        when service changes whose turn it is."""
        turns = self._preempted or (self.queue.charges and len(self.running) < self._limit())
        return turns and self.waiting > 0

    def take_late(self) -> list[float]:
        """Times of the last token of sequences that came back into the batch in this step."""
        late, self._late = self._late, []
        return late

    def _reserve(self) -> int:
        """Blocks that the batch's next step needs."""
        return self.decoders.growth(self.decoders.tokens_in(1)) if self.decoders.count else 0

    def _make_room(self, now: float) -> bool:
        preempted = False
        while self.decoders.count and self._reserve() > self.pool.available:
            self._preempt(self._victim(), now)
            preempted = True
        return preempted

    def _victim(self) -> Sequence:
        if self.settings.policy is Policy.PRIORITY:
            return max(self.running, key=lambda sequence: (sequence.priority, sequence.order))
        return next(reversed(self.running))

    def _preempt(self, sequence: Sequence, now: float) -> None:
        """Take its blocks and let it wait again."""
        self._tally.preemptions += 1
        sequence.call.preemptions += 1
        if sequence.phase is Phase.DECODE:
            sequence.last_token = now
            swap = self.settings.preemption is Preemption.SWAP
            self._leave_batch(sequence, Phase.WAITING)
            if swap:
                sequence.swapped = True
                sequence.target = sequence.computed
                self._added += sequence.computed * self._swap_seconds
        else:
            self.prefilling.remove(sequence)
            self._leave_slot(sequence)
            self.prefixes.release(sequence, sequence.allocated, sequence.computed)
            sequence.phase = Phase.WAITING
        if not sequence.swapped:
            sequence.target = sequence.prompt + sequence.generated
        sequence.computed = sequence.allocated = 0
        self.queue.push(sequence)

    def _continue_prefills(
        self, chunks: list[tuple[Sequence, int]], budget: int, now: float
    ) -> tuple[int, bool]:
        preempted = False
        for sequence in list(self.prefilling):
            if sequence.phase is not Phase.PREFILL:
                continue
            tokens = self._chunk(sequence, budget, bool(chunks))
            if tokens <= 0:
                continue
            while sequence.phase is Phase.PREFILL and self._grown(sequence, tokens) > self._spare():
                self._preempt(self._victim(), now)
                preempted = True
            if sequence.phase is not Phase.PREFILL:
                break
            self._allot(sequence, tokens)
            chunks.append((sequence, tokens))
            budget -= tokens
        # A victim may have had its chunk already.
        chunks[:] = [chunk for chunk in chunks if chunk[0].phase is Phase.PREFILL]
        return budget, preempted

    def _chunk(self, sequence: Sequence, budget: int, shared: bool) -> int:
        """Tokens that ``sequence`` may prefill in this step. Without chunking it is the whole prompt, which
        may exceed the budget when it does not share the step."""
        left, settings = sequence.target - sequence.computed, self.settings
        if not settings.chunked_prefill:
            return left if left <= budget or not shared else 0
        threshold = settings.long_prefill_threshold_tokens
        if threshold and left > threshold:
            if self._long_ones >= settings.max_long_partial_prefills:
                return 0
            self._long_ones += 1
            return min(threshold, budget)
        return min(left, budget)

    def _grown(self, sequence: Sequence, tokens: int) -> int:
        block = self._block
        return -(-(sequence.computed + tokens) // block) + (-sequence.allocated // block)

    def _spare(self) -> int:
        return self.pool.available - self._reserve()

    def _allot(self, sequence: Sequence, tokens: int) -> None:
        self.pool.take(self._grown(sequence, tokens))
        sequence.allocated = sequence.computed + tokens

    def _admit(self, chunks: list[tuple[Sequence, int]], budget: int, now: float) -> None:
        """Let in who is next while there is room; who does not fit holds up those behind."""
        while budget > 0 and len(self.running) < self._limit():
            fetched = bool(self.ready)
            sequence = self.ready[0] if fetched else self.queue.peek()
            if sequence is None:
                return
            if not fetched and self._lacks_adapter(sequence):
                self.parked.append(self.queue.pop())
                continue
            if sequence.swapped:
                if not self._swap_in(sequence):
                    return
                continue
            if not fetched and (sent := self._look_around(sequence)) is not None:
                if not sent:
                    return
                continue
            tokens = self._enter(sequence, budget, bool(chunks), now)
            if tokens <= 0:
                return
            chunks.append((sequence, tokens))
            budget -= tokens

    def _lacks_adapter(self, sequence: Sequence) -> bool:
        adapter, slots = sequence.adapter, self.settings.max_loras
        return bool(adapter and slots) and adapter not in self._adapters and len(self._adapters) >= slots

    def _seat(self, sequence: Sequence) -> None:
        """Give ``sequence`` a slot of the batch."""
        if self.ready and self.ready[0] is sequence:
            self.ready.pop(0)
        else:
            self.queue.pop()
        sequence.phase = Phase.PREFILL
        self.running[sequence] = None
        if sequence.adapter:
            self._adapters[sequence.adapter] = self._adapters.get(sequence.adapter, 0) + 1
            if self.parked:
                self._unpark(sequence.adapter)

    def _swap_in(self, sequence: Sequence) -> bool:
        """Bring a swapped sequence's KV back; whether there was room for it and its next token."""
        blocks = -(-sequence.target // self._block)
        if blocks + 1 > self._spare():
            return False
        self.pool.take(blocks)
        self._seat(sequence)
        self._added += sequence.target * self._swap_seconds
        self._late.append(sequence.last_token)
        sequence.swapped = False
        self.join(sequence)
        return True

    def _look_around(self, sequence: Sequence) -> bool | None:
        """Whether ``sequence`` now waits for KV from elsewhere; False: it would, but there is no room;
        None: no need."""
        if sequence.asked or sequence.generated or not self.outside.shares:
            return None
        match = self.prefixes.match(sequence)
        cached = sum(match) * self._block
        offered = self.outside.offer(sequence, cached)
        if offered < 0:
            return None
        blocks = offered // self._block
        if blocks + self.prefixes.price(sequence, match) > self._spare():
            return False
        self.queue.pop()
        self._hold(sequence, match)
        self.pool.take(blocks)
        sequence.allocated = cached + offered
        sequence.asked = True
        sequence.phase = Phase.FETCHING
        self.fetching[sequence] = None
        self.outside.fetch(sequence, offered)
        return True

    def _hold(self, sequence: Sequence, match: tuple[int, int]) -> None:
        self.prefixes.hold(sequence, match)
        sequence.computed = sequence.allocated = sum(match) * self._block
        if self.prefixes.enabled and not sequence.call.preemptions:
            sequence.cached = sequence.computed
            self._tally.queries_tokens += sequence.prompt
            self._tally.hits_tokens += sequence.computed

    def _enter(self, sequence: Sequence, budget: int, shared: bool, now: float) -> int:
        """Admit ``sequence`` if its blocks are there; the tokens it prefills in this step, 0: it has to
        wait."""
        held = bool(self.ready) and self.ready[0] is sequence
        match = (0, 0) if held else self.prefixes.match(sequence)
        if not held:
            sequence.computed = sequence.allocated = sum(match) * self._block
        tokens = self._chunk(sequence, budget, shared)
        whole = sequence.target - sequence.computed if self.settings.reserve_full_isl else tokens
        price = 0 if held else self.prefixes.price(sequence, match)
        if tokens <= 0 or self._grown(sequence, whole) + price > self._spare():
            if not held:
                sequence.computed = sequence.allocated = 0
            return 0
        if not held:
            self._hold(sequence, match)
        self._seat(sequence)
        self.prefilling.append(sequence)
        self._allot(sequence, tokens)
        if sequence.call.scheduled != sequence.call.scheduled:  # NaN: the first time
            sequence.call.scheduled = now
            self.queue.charge(sequence.tenant, sequence.prompt, 0)
            if sequence.call.structured:
                self._added += self.outside.grammar_seconds
        return tokens
