"""KV shared between replicas: a prefix that another one holds is fetched, not computed again."""

from __future__ import annotations

import numpy as np

from diag.simulate.plan import Fabric
from diag.simulate.serving.loop import Loop
from diag.simulate.serving.outside import Outside
from diag.simulate.serving.reading import reader
from diag.simulate.serving.sequences import Phase, Sequence
from diag.simulate.serving.server import Server

__all__ = ["Exchange", "Member"]

_LEAST_BLOCKS = 2


class Exchange:
    """All members and what acts on the fabric between them."""

    def __init__(self, fabric: Fabric, loop: Loop, rng: np.random.Generator) -> None:
        self.fabric = fabric
        self.loop = loop
        self.rng = rng
        self.members: list[Member] = []
        self.failing = reader(fabric.failure_ratio)

    def stale(self, asking: Server) -> Server | None:
        """A server that ``asking`` believes to hold what it does not."""
        now = self.loop.now
        for start, end, name in self.fabric.stale:
            if start <= now < end and name != asking.name:
                return next((member.server for member in self.members if member.server.name == name), None)
        return None

    def broken(self, time: float, one: str, other: str) -> bool:
        """Whether the way between two hosts is down."""
        return one != other and any(
            start <= time < end and host in (one, other) for start, end, host in self.fabric.flaps
        )


class Member(Outside):
    """One server's side of the exchange."""

    __slots__ = ("_exchange", "_peer", "server")

    shares = True

    def __init__(self, exchange: Exchange, server: Server) -> None:
        super().__init__()
        self._exchange = exchange
        self._peer: Server | None = None
        self.server = server
        exchange.members.append(self)

    def offer(self, sequence: Sequence, cached: int) -> int:
        block = self.server.replica.settings.block_size_tokens
        known = min(sequence.known_tokens, sequence.target - 1) // block * block
        if sequence.known_tokens <= sequence.head_tokens or known - cached < _LEAST_BLOCKS * block:
            return -1
        self._peer = self._exchange.stale(self.server)
        if self._peer is not None:
            return 0
        best = _LEAST_BLOCKS * block - 1
        for member in self._exchange.members:
            server = member.server
            if server is self.server or server.down:
                continue
            more = min(server.held_tokens(sequence.head_key, sequence.session_key), known) - cached
            if more > best:
                best, self._peer = more, server
        return -1 if self._peer is None else best // block * block

    def fetch(self, sequence: Sequence, tokens: int) -> None:
        exchange, peer = self._exchange, self._peer
        assert peer is not None
        if tokens == 0:
            self._ask_in_vain(sequence, peer)
            return
        fabric, now = exchange.fabric, exchange.loop.now
        tally = self.server.replica.tally
        link = min(self.server.link_ratio, peer.link_ratio)
        span = tokens * self.server.replica.machine.kv_bytes_per_token / (fabric.bytes_per_second * link)
        time, sent = now, False
        for _ in range(1 + fabric.retries):
            tally.transfers += 1
            failed = exchange.broken(time, self.server.host, peer.host)
            if not failed and exchange.rng.random() >= exchange.failing(now):
                time, sent = time + fabric.setup_seconds + span, True
                break
            tally.transfer_failures += 1
            time += fabric.timeout_seconds
        if not sent:
            peer.replica.tally.transfer_expired += 1
        exchange.loop.at(time, self._arrive, sequence, tokens if sent else 0)

    def _ask_in_vain(self, sequence: Sequence, peer: Server) -> None:
        wait = self._exchange.fabric.lookup_seconds
        self.server.replica.tally.lookup_misses += 1
        peer.replica.tally.lookup_misses += 1
        answered = peer.occupy_front(wait)
        self._exchange.loop.at(max(answered, self._exchange.loop.now + wait), self._arrive, sequence, 0)

    def _arrive(self, sequence: Sequence, tokens: int) -> None:
        if sequence.phase is not Phase.FETCHING:
            return
        sequence.external = tokens
        sequence.computed += tokens
        self.server.replica.resume(sequence)
