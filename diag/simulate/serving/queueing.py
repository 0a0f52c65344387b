"""Who is admitted next.

``Queue`` orders by a key; ``TokenCounter`` is the Virtual Token Counter of Sheng et al., "Fairness in
Serving Large Language Models" (OSDI '24): the tenant that was served least goes first, and one that
comes back is lifted to the lowest counter of those who wait, so that idling saves up nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from diag.simulate.plan import Policy
from diag.simulate.serving.sequences import Phase, Sequence

__all__ = ["Queue", "TokenCounter", "queue_of"]

_PROMPT_WEIGHT = 1.0
_ANSWER_WEIGHT = 2.0


def _arrival(sequence: Sequence) -> tuple[float, int]:
    return 0.0, sequence.order


def _priority(sequence: Sequence) -> tuple[float, int]:
    return float(sequence.priority), sequence.order


def _length(sequence: Sequence) -> tuple[float, int]:
    return float(sequence.prompt), sequence.order


_KEYS = {Policy.FCFS: _arrival, Policy.PRIORITY: _priority, Policy.SHORTEST: _length}


class Queue:
    """Waiting sequences in the order of a key; the lowest priority number goes first, as in vLLM. Those who
    left stay inside until they come up."""

    __slots__ = ("_heap", "_key", "count")

    charges = False

    def __init__(self, key: Callable[[Sequence], tuple[float, int]] = _arrival) -> None:
        self._key = key
        self._heap: list[tuple[tuple[float, int], Sequence]] = []
        self.count = 0

    def push(self, sequence: Sequence) -> None:
        """Let ``sequence`` wait (again)."""
        heappush(self._heap, (self._key(sequence), sequence))
        self.count += 1

    def peek(self) -> Sequence | None:
        """Who is next; None when nobody waits."""
        heap = self._heap
        while heap and heap[0][1].phase is not Phase.WAITING:
            heappop(heap)
        return heap[0][1] if heap else None

    def pop(self) -> Sequence:
        """Take out the one that ``peek`` showed."""
        self.count -= 1
        return heappop(self._heap)[1]

    def leave(self, sequence: Sequence) -> None:
        """``sequence`` waits no more; its phase says so already."""
        assert sequence.phase is not Phase.WAITING
        self.count -= 1

    def charge(self, tenant: str, prompt_tokens: int, answer_tokens: int) -> None:
        """Somebody was served; only a counter of tokens minds."""

    def drain(self) -> list[Sequence]:
        """Everybody who waits; the queue is empty afterwards."""
        found = [sequence for _, sequence in self._heap if sequence.phase is Phase.WAITING]
        self._heap.clear()
        self.count = 0
        return found


class TokenCounter(Queue):
    """One queue a tenant and what each was served, prompt tokens once and answer tokens twice."""

    __slots__ = ("_last", "_queues", "counters")

    charges = True

    def __init__(self) -> None:
        super().__init__()
        self.counters: dict[str, float] = {}
        self._queues: dict[str, Queue] = {}
        self._last = ""

    def push(self, sequence: Sequence) -> None:
        tenant = sequence.tenant
        queue = self._queues.setdefault(tenant, Queue())
        if queue.peek() is None:
            self._lift(tenant)
        queue.push(sequence)
        self.count += 1

    def _lift(self, tenant: str) -> None:
        waiting = [self.counters[other] for other, queue in self._queues.items() if queue.peek() is not None]
        own = self.counters.get(tenant, 0.0)
        floor = min(waiting) if waiting else self.counters.get(self._last, 0.0)
        self.counters[tenant] = max(own, floor)

    def _next(self) -> Queue | None:
        best: tuple[float, str] | None = None
        for tenant, queue in self._queues.items():
            mark = (self.counters[tenant], tenant)
            if (best is None or mark < best) and queue.peek() is not None:
                best = mark
        return None if best is None else self._queues[best[1]]

    def peek(self) -> Sequence | None:
        queue = self._next()
        return None if queue is None else queue.peek()

    def pop(self) -> Sequence:
        queue = self._next()
        assert queue is not None
        sequence = queue.pop()
        self._last = sequence.tenant
        self.count -= 1
        return sequence

    def charge(self, tenant: str, prompt_tokens: int, answer_tokens: int) -> None:
        served = _PROMPT_WEIGHT * prompt_tokens + _ANSWER_WEIGHT * answer_tokens
        self.counters[tenant] = self.counters.get(tenant, 0.0) + served

    def drain(self) -> list[Sequence]:
        found = [sequence for queue in self._queues.values() for sequence in queue.drain()]
        self.count = 0
        return found


def queue_of(policy: Policy) -> Queue:
    """An empty queue of that policy."""
    return TokenCounter() if policy is Policy.TOKEN_COUNTER else Queue(_KEYS[policy])
