"""A request on its way: what its client asked, and where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diag.simulate.observed import Call
from diag.simulate.serving.sequences import Sequence

if TYPE_CHECKING:
    from diag.simulate.serving.server import Server

__all__ = ["Ask", "Owner", "Session"]


class Session:
    """A conversation. ``first``: its place in its client's draws; ``history``: tokens said so far;
    ``epoch``: grows when the start of that is trimmed away."""

    __slots__ = ("epoch", "first", "history", "name", "tries", "turn", "turns")

    def __init__(self, name: str, first: int, turns: int) -> None:
        self.name = name
        self.first = first
        self.turns = turns
        self.turn = 0
        self.history = 0
        self.epoch = 0
        self.tries = 0


class Ask:
    """One try. ``question``: equal for tries of the same prompt; ``pooled``: it takes a place in
    the gateway's pool; ``sent``: its client let it go; ``owner``: whom to tell that it is over."""

    __slots__ = (
        "answer_tokens", "call", "closed", "cut", "gateway_tries", "head_key", "leave_seen", "owner",
        "pooled", "priority", "question", "sent", "sequence", "server", "session", "session_key",
    )  # fmt: skip

    def __init__(self, call: Call, session: Session, answer_tokens: int, question: int) -> None:
        self.call = call
        self.session = session
        self.answer_tokens = answer_tokens
        self.question = question
        self.cut = False
        self.head_key = ""
        self.session_key = ""
        self.priority = 0
        self.leave_seen = True
        self.closed = False
        self.pooled = False
        self.sent = False
        self.gateway_tries = 0
        self.sequence: Sequence | None = None
        self.server: Server | None = None
        self.owner: Owner | None = None


class Owner:
    """Who sent an ask."""

    def over(self, ask: Ask) -> None:
        """``ask`` is closed, now."""
