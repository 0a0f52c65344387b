"""The sequences that decode, advanced together.

Each step gives every one of them the same number of tokens, so one clock serves all: a sequence notes
the clock when it joins, and its context, its end and its next block follow. A step, or a thousand,
costs the same.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil

from diag.simulate.serving.sequences import Phase, Sequence

__all__ = ["Decoders"]


class Decoders:
    """``clock``: tokens given since the start; ``context``: sum over sequences, tokens; ``fraction``: of
    a token left over (with speculative decoding a step gives ``rate`` tokens on average)."""

    __slots__ = ("_block", "_ends", "_joined", "_residues", "clock", "context", "count", "fraction", "rate")

    def __init__(self, block_size_tokens: int) -> None:
        self._block = block_size_tokens
        self._residues = [0] * block_size_tokens
        self._ends: list[tuple[int, int, Sequence]] = []
        self._joined = 0
        self.clock = 0
        self.context = 0
        self.count = 0
        self.fraction = 0.0
        self.rate = 1.0

    def join(self, sequence: Sequence, context: int) -> None:
        """``sequence`` decodes from here on, with KV for ``context`` tokens."""
        sequence.phase = Phase.DECODE
        sequence.base = context - self.clock
        sequence.finish_at = self.clock + sequence.left_tokens
        self._residues[-sequence.base % self._block] += 1
        self.context += context
        self.count += 1
        self._joined += 1
        sequence.stamp = self._joined
        heappush(self._ends, (sequence.finish_at, self._joined, sequence))

    def leave(self, sequence: Sequence, phase: Phase) -> int:
        """Take ``sequence`` out into ``phase``; its context in tokens."""
        context = sequence.base + self.clock
        sequence.generated = min(
            sequence.answer_tokens - (sequence.finish_at - self.clock), sequence.answer_tokens
        )
        sequence.phase = phase
        self._residues[-sequence.base % self._block] -= 1
        self.context -= context
        self.count -= 1
        return context

    def tokens_in(self, steps: int) -> int:
        """Tokens that ``steps`` steps give to each."""
        return steps if self.rate == 1.0 else int(self.fraction + steps * self.rate + 1e-9)

    def steps_to_finish(self) -> int:
        """Steps until the first is done; at least 1."""
        ends = self._ends
        while ends[0][2].phase is not Phase.DECODE or ends[0][2].stamp != ends[0][1]:
            heappop(ends)
        left = ends[0][0] - self.clock
        return left if self.rate == 1.0 else max(ceil((left - self.fraction) / self.rate - 1e-9), 1)

    def growth(self, tokens: int) -> int:
        """Blocks that ``tokens`` more tokens each would need."""
        full, rest = divmod(tokens, self._block)
        blocks = full * self.count
        if rest:
            # A sequence enters a new block when the clock comes to its residue.
            first = self.clock % self._block
            blocks += sum(self._residues[first : first + rest])
            if first + rest > self._block:
                blocks += sum(self._residues[: first + rest - self._block])
        return blocks

    def steps_within(self, blocks: int, most: int) -> int:
        """How many of ``most`` steps ``blocks`` blocks are enough for; at least 1."""
        tokens = self.tokens_in(most)
        if self.count * (tokens // self._block + 1) <= blocks or self.growth(tokens) <= blocks:
            return most
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            if self.growth(self.tokens_in(middle)) <= blocks:
                low = middle
            else:
                high = middle
        return low

    def advance(self, steps: int) -> int:
        """Take ``steps`` steps; the tokens each got."""
        tokens = self.tokens_in(steps)
        if self.rate != 1.0:
            self.fraction += steps * self.rate - tokens
        self.clock += tokens
        self.context += tokens * self.count
        return tokens

    def finished(self) -> list[Sequence]:
        """Those that are done, first to join first; they are still in."""
        found, ends = [], self._ends
        while ends and ends[0][0] <= self.clock:
            _, stamp, sequence = heappop(ends)
            if sequence.phase is Phase.DECODE and sequence.stamp == stamp:
                found.append(sequence)
        return found
