"""Which replica gets a request."""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b

from diag.simulate.plan import Balancing
from diag.simulate.serving.asks import Ask
from diag.simulate.serving.server import Server

__all__ = ["Router"]

_NOTICE_SECONDS = 1.0  # until a health check finds a dead replica


class Router:
    """Picks by the kind of balancing that holds at the time. A cache-aware one believes that a replica holds
    what it sent there since it took over, as routers do that keep a tree of prefixes: it is told nothing."""

    __slots__ = ("_heads", "_homes", "_kinds", "_switches", "_turn", "_weight")

    def __init__(self, balancing: tuple[tuple[float, Balancing], ...], affinity_weight: float) -> None:
        self._switches = [time for time, _ in balancing]
        self._kinds = [kind for _, kind in balancing]
        self._weight = affinity_weight
        self._turn = 0
        self._heads: dict[str, set[str]] = {}
        self._homes: dict[str, str] = {}

    def pick(self, ask: Ask, servers: list[Server], failed: Server | None, now: float) -> Server | None:
        """The one for ``ask``; None when all are known to be down. ``failed``: has just refused it."""
        up = [server for server in servers if not server.down or now - server.down_since < _NOTICE_SECONDS]
        if failed is not None and len(up) > 1:
            up = [server for server in up if server is not failed]
        if len(up) < 2:
            return up[0] if up else None
        self._turn += 1
        first = self._turn % len(up)
        kind = self._kinds[max(bisect_right(self._switches, now) - 1, 0)]
        if kind is Balancing.ROUND_ROBIN:
            return up[first]
        if kind is Balancing.STICKY:
            return max(up, key=lambda server: _mark(ask.session.name, server.name))
        turned = up[first:] + up[:first]
        if kind is Balancing.LEAST_LOADED:
            return min(turned, key=lambda server: server.in_flight)
        return self._likely(ask, turned)

    def _likely(self, ask: Ask, servers: list[Server]) -> Server:
        """The one with the best mixture of a believed prefix and little load, relative to the mean load."""
        call, mean = ask.call, sum(server.in_flight for server in servers) / len(servers)
        heads = self._heads.setdefault(ask.head_key, set()) if ask.head_key else set()
        home = self._homes.get(ask.session_key)

        def worth(server: Server) -> float:
            held = call.head_tokens * (server.name in heads) + call.history_tokens * (server.name == home)
            affinity = self._weight * held / call.prompt_tokens
            return affinity - (1.0 - self._weight) * server.in_flight / max(mean, 1.0)

        chosen = max(servers, key=worth)
        heads.add(chosen.name)
        self._homes[ask.session_key] = chosen.name
        return chosen


def _mark(session: str, server: str) -> bytes:
    """Rendezvous hashing: a session stays where its mark is highest, whoever else comes or goes."""
    return blake2b(f"{session}|{server}".encode(), digest_size=8).digest()
