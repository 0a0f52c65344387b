"""The KV pool: blocks in use, blocks that keep a prefix for later, free ones.

A prompt is a chain: a head that many requests share, then what belongs to one session. A ``Chain`` stands
for one such piece and counts its full blocks; a session's chain hangs on its head's. Blocks of chains
that nobody uses stay as evictable; the chain that was left longest ago gives first, from its tail, as in
vLLM's free queue (its block_pool.py).
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Chain", "Pool"]


class Chain:
    """A cached piece of prefix. ``question``: whose prompt it holds wholly."""

    __slots__ = ("blocks", "key", "question", "users")

    def __init__(self, key: str) -> None:
        self.key = key
        self.blocks = 0
        self.users = 0
        self.question = -1


class Pool:
    """``size`` blocks. ``used`` counts each block that somebody refers to once, and leaked ones."""

    __slots__ = ("_idle", "chains", "evictable", "evicted", "leaked", "size", "used")

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.leaked = 0
        self.evictable = 0
        self.evicted = 0
        self.chains: dict[str, Chain] = {}
        self._idle: OrderedDict[str, Chain] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that can be had: free or evictable."""
        return self.size - self.used

    def chain(self, key: str) -> Chain:
        """The chain of that key, made where there is none."""
        found = self.chains.get(key)
        if found is None:
            found = self.chains[key] = Chain(key)
        return found

    def held_blocks(self, key: str) -> int:
        """Blocks that the chain of that key keeps."""
        found = self.chains.get(key)
        return 0 if found is None else found.blocks

    def price(self, key: str) -> int:
        """Evictable blocks that become used if one more holds that chain."""
        found = self.chains.get(key)
        return 0 if found is None or found.users else found.blocks

    def hold(self, chain: Chain) -> None:
        """One more uses all of ``chain``."""
        if chain.users == 0:
            self._idle.pop(chain.key, None)
            self.evictable -= chain.blocks
            self.used += chain.blocks
        chain.users += 1

    def drop(self, chain: Chain) -> None:
        """One fewer; without users it becomes evictable, as the last to go."""
        chain.users -= 1
        if chain.users:
            return
        self.used -= chain.blocks
        if chain.blocks:
            self.evictable += chain.blocks
            self._idle[chain.key] = chain
        else:
            self.chains.pop(chain.key, None)

    def trim(self, chain: Chain, blocks: int) -> None:
        """Free all but the first ``blocks`` of a chain without users: what follows will not come again."""
        self.evictable -= chain.blocks - blocks
        chain.blocks = blocks
        if blocks == 0:
            self._idle.pop(chain.key, None)
            self.chains.pop(chain.key, None)

    def take(self, blocks: int) -> None:
        """Use ``blocks`` more; evicts what is missing. There must be as many available."""
        self.used += blocks
        missing = self.used + self.evictable - self.size
        if missing > 0:
            self._evict(missing)

    def give(self, blocks: int) -> None:
        """Free blocks that hold nothing worth keeping."""
        self.used -= blocks

    def leak(self, blocks: int) -> None:
        """Blocks that stay taken by nobody; at most what is available."""
        blocks = min(blocks, self.available)
        self.leaked += blocks
        self.take(blocks)

    def _evict(self, missing: int) -> None:
        while missing > 0 and self._idle:
            key, chain = next(iter(self._idle.items()))
            gone = min(missing, chain.blocks)
            chain.blocks -= gone
            self.evictable -= gone
            self.evicted += gone
            missing -= gone
            if chain.blocks == 0:
                del self._idle[key]
                self.chains.pop(key, None)
