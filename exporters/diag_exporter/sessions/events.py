"""One event a request: counts, times and hashes, never text."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

__all__ = ["SESSION_SOURCES", "Event", "Sink", "Status"]

Status = Literal["ok", "error", "aborted"]

SESSION_SOURCES = (
    "x-session-id",
    "x-session-affinity",
    "session_id",
    "metadata.session_id",
    "prompt_cache_key",
    "user",
    "fingerprint",
    "request_id",
    "log",
    "none",
)
"""Where a session's identity can come from, strongest first. ``user`` is a person, not a conversation;
``fingerprint`` is a guess (identical templates collide); ``log``: a log's own field, origin unknown."""


# A tuple, not a frozen dataclass: one is made per request, and the tuple costs a quarter.
class Event(NamedTuple):
    """One finished request. ``None`` is not known, never 0.

    ``ts``: arrival, unix seconds. ``model``, ``tenant``, ``instance``: names, "" when not known.
    ``session``: keyed 64-bit hash (see ``identity``). ``session_source``: one of ``SESSION_SOURCES``.
    ``cached_tokens``: prompt tokens served from a prefix cache. ``repeated_tokens``: prompt tokens that
    a feed *knows* were sent before in this order (the table estimates them otherwise).
    ``tokens_after_abort``: tokens the engine went on making after the client had left.
    ``request``: process-local hash of the request id, for joining feeds; 0 when there is none.
    """

    ts: float
    model: str = ""
    tenant: str = ""
    session: int | None = None
    session_source: str = "none"
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    ttft_seconds: float | None = None
    queue_seconds: float | None = None
    duration_seconds: float | None = None
    status: Status = "ok"
    tokens_after_abort: int | None = None
    instance: str = ""
    repeated_tokens: int | None = None
    request: int = 0


class Sink(Protocol):
    """Where feeds put events; safe to call from any thread, never blocks for long."""

    def add(self, event: Event) -> None:
        """Take in one finished request."""

    def began(self, tenant: str) -> None:
        """A request of ``tenant`` is in flight from now on (only feeds that see both ends say so)."""

    def ended(self, tenant: str) -> None:
        """The counterpart of ``began``; the request's event is added apart."""
