"""How a feed fares: what came, what could not be used, what stands in its way."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FeedError", "FeedState"]


class FeedError(Exception):
    """A feed cannot be set up; the message says why and what to do, in one line."""


@dataclass(slots=True)
class FeedState:
    """``name``: a log's file name, or an address. ``error``: why nothing can come now; "" when it can.

    ``events``: requests taken in. ``skipped``: fine, but no inference request. ``unusable``: lines or
    spans that could not be read. ``last_event``: time of the newest event by its own clock, unix
    seconds; None before the first.
    """

    name: str
    kind: str
    error: str = ""
    events: int = 0
    skipped: int = 0
    unusable: int = 0
    too_long: int = 0
    rotations: int = 0
    truncations: int = 0
    last_event: float | None = None
