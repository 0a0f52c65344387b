"""Which of a prompt's blocks are there already, and what becomes of a sequence's blocks when it goes."""

from __future__ import annotations

from diag.simulate.serving.blocks import Pool
from diag.simulate.serving.sequences import Sequence

__all__ = ["Prefixes"]


class Prefixes:
    """The prefix cache of one replica over its pool; ``enabled``: caching on."""

    __slots__ = ("_block", "enabled", "pool")

    def __init__(self, pool: Pool, block_size_tokens: int, enabled: bool) -> None:
        self.pool = pool
        self.enabled = enabled
        self._block = block_size_tokens

    def _whole_head(self, sequence: Sequence) -> int:
        return sequence.head_tokens // self._block if sequence.head_key else 0

    def match(self, sequence: Sequence) -> tuple[int, int]:
        """Cached blocks of the head and of the session's own prefix that ``sequence`` could use; one token at
        least is always computed."""
        if not self.enabled:
            return 0, 0
        block, most = self._block, (sequence.target - 1) // self._block
        whole = self._whole_head(sequence)
        head = min(self.pool.held_blocks(sequence.head_key), whole, most) if whole else 0
        chain = self.pool.chains.get(sequence.session_key)
        if head < whole or chain is None:
            return head, 0
        same = chain.question == sequence.question
        known = most if same else min(sequence.known_tokens // block, most)
        own = min(chain.blocks, known - whole)
        if own < chain.blocks and chain.users:
            return head, 0
        return head, max(own, 0)

    def price(self, sequence: Sequence, match: tuple[int, int]) -> int:
        """Available blocks that holding ``match`` uses up."""
        head, own = match
        used = self.pool.price(sequence.head_key) if head else 0
        chain = self.pool.chains.get(sequence.session_key) if own else None
        return used + (own if chain is not None and not chain.users else 0)

    def hold(self, sequence: Sequence, match: tuple[int, int]) -> None:
        """Keep ``match`` for ``sequence``."""
        head, own = match
        if head:
            sequence.head_chain = self.pool.chain(sequence.head_key)
            self.pool.hold(sequence.head_chain)
        chain = self.pool.chains.get(sequence.session_key)
        if chain is not None and not chain.users and own < chain.blocks:
            self.pool.trim(chain, own)
        if own and chain is not None:
            sequence.session_chain = chain
            self.pool.hold(chain)
        sequence.head_blocks, sequence.session_blocks = head, own

    def progress(self, sequence: Sequence) -> None:
        """Share the head's blocks with others as soon as they are computed."""
        whole = self._whole_head(sequence)
        if not self.enabled or sequence.head_blocks >= whole:
            return
        now = min(sequence.computed // self._block, whole)
        if now <= sequence.head_blocks or self.pool.held_blocks(sequence.head_key) != sequence.head_blocks:
            return
        if sequence.head_chain is None:
            sequence.head_chain = self.pool.chain(sequence.head_key)
            self.pool.hold(sequence.head_chain)
        sequence.head_chain.blocks = sequence.head_blocks = now

    def release(self, sequence: Sequence, allocated: int, computed: int) -> None:
        """``sequence`` goes with blocks for ``allocated`` tokens of which ``computed`` hold KV: full
        blocks stay for its session's next turn, the rest is free."""
        block = self._block
        private = -(-allocated // block) - sequence.head_blocks - sequence.session_blocks
        if self.enabled and sequence.session_key:
            private -= self._keep(sequence, private, computed // block)
        self.pool.give(private)
        # Tail first: what more requests share is kept longer.
        if sequence.session_chain is not None:
            self.pool.drop(sequence.session_chain)
        if sequence.head_chain is not None:
            self.pool.drop(sequence.head_chain)
        sequence.head_chain = sequence.session_chain = None
        sequence.head_blocks = sequence.session_blocks = 0

    def _keep(self, sequence: Sequence, private: int, full: int) -> int:
        """Blocks that pass from ``sequence`` to its session's chain."""
        whole, pool = self._whole_head(sequence), self.pool
        if whole and pool.held_blocks(sequence.head_key) < whole:
            return 0
        want = full - whole
        more = min(want - pool.held_blocks(sequence.session_key), private)
        if more <= 0:
            return 0
        chain = sequence.session_chain
        if chain is None:
            chain = sequence.session_chain = pool.chain(sequence.session_key)
            pool.hold(chain)
        chain.blocks += more
        chain.question = sequence.question
        return more
