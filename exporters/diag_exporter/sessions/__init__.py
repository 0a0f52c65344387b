"""Sessions and tenants: whose context is how long, what repeats, what was cached, what was abandoned.

    feeds (JSON logs, spans, the proxy)  ──events──>  table  ──rows──>  collectors

Feeds are stepped by a thread of their own; a scrape and a sampler see only what the table holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diag_exporter.families import Collector
    from diag_exporter.sessions.running import Sessions

__all__ = ["SessionOptions", "collectors", "open_sessions"]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What to follow and how much to keep.

    ``logs``: request logs, read by ``preset`` (plain, litellm, nginx) or by ``fields`` (plain field ->
    path in the line). ``from_start``: also read what is in them already. ``otlp_listen``: host and port
    to receive traces on. ``session_in_request_id``: the gateway makes request ids of
    ``<session>-<number>``. ``proxied``: a proxy will put its events into ``Sessions.sink``.
    ``engine_logs``: logs of engines that no ``--engine`` part follows.
    ``key_file``: key of the session hash; None makes one that dies with the process. ``max_length``:
    tokens a model takes (None: what the engine part of this process learnt).
    """

    logs: Sequence[Path] = ()
    preset: str = "plain"
    fields: dict[str, str] = field(default_factory=dict)
    from_start: bool = False
    otlp_listen: tuple[str, int] | None = None
    session_in_request_id: bool = False
    proxied: bool = False
    engine_logs: Sequence[Path] = ()
    key_file: Path | None = None
    sessions: int = 100_000
    tenants: int = 20
    models: int = 20
    active_seconds: float = 900.0
    window_seconds: float = 300.0
    max_length: Callable[[str], int | None] | None = None


def open_sessions(options: SessionOptions) -> Sessions:
    """Open the feeds, not started. Its ``sink`` is for the proxy, its ``key`` the hash's.

    Raises ``FeedError`` or ``IdentityError`` (one line each) when something cannot be had.
    """
    from diag_exporter.sessions.running import Sessions

    return Sessions(options)


def collectors(options: SessionOptions, sessions: Sessions | None = None) -> list[Collector]:
    """Collectors of one ``Sessions`` (opened here unless given); their first ``collect`` starts the
    feeds, ``close`` of any of them stops them."""
    return (sessions or open_sessions(options)).collectors()
