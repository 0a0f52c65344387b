"""A log of JSON lines, followed: one event a line."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from diag_exporter.sessions.events import Event
from diag_exporter.sessions.feeds.decode import LineDecoder
from diag_exporter.sessions.feeds.follow import Follower
from diag_exporter.sessions.feeds.presets import PLAIN_FIELDS, PRESETS
from diag_exporter.sessions.feeds.state import FeedError, FeedState
from diag_exporter.sessions.identity import Identifier

__all__ = ["BatchSink", "JsonLog", "parse_fields"]

_LOG = logging.getLogger("diag_exporter")
_HINT_LINES = 20
_NAME = re.compile(r"[^\w.:-]+")


class BatchSink(Protocol):
    """Where a feed puts what it read at one moment."""

    def add_all(self, events: Sequence[Event]) -> None:
        """Take in a batch."""


def parse_fields(text: str) -> dict[str, str]:
    """``prompt_tokens=usage.prompt_tokens,session=user`` as a dict. Raises ``FeedError``."""
    fields: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, path = part.partition("=")
        if name not in PLAIN_FIELDS or not equals or not path:
            raise FeedError(f"{part!r} is not FIELD=PATH; fields are {', '.join(PLAIN_FIELDS)}")
        fields[name] = path
    return fields


class JsonLog:
    """Follows ``path`` and puts its requests into ``sink``."""

    def __init__(
        self,
        path: Path,
        sink: BatchSink,
        identifier: Identifier,
        *,
        preset: str = "plain",
        fields: dict[str, str] | None = None,
        from_start: bool = False,
        with_ids: bool = True,
    ) -> None:
        if preset not in PRESETS:
            raise FeedError(f"{preset!r} is no log preset; there are {', '.join(PRESETS)}")
        if fields and preset != "plain":
            raise FeedError(f"a field map goes with plain lines, not with preset {preset}")
        self.state = FeedState(_NAME.sub("_", path.name), "json_log")
        self._sink = sink
        self._decoder = LineDecoder(identifier, PRESETS[preset], fields=fields, with_ids=with_ids)
        self._follower = Follower(path, from_start=from_start)

    def step(self) -> bool:
        """Take in what is there, at most one chunk; whether there may be more right now."""
        lines = self._follower.read()
        state, source = self.state, self._follower.state
        if lines:
            self._take(lines)
        state.error = source.error
        state.too_long, state.rotations, state.truncations = (
            source.too_long, source.rotations, source.truncations,
        )  # fmt: skip
        return bool(lines)

    def close(self) -> None:
        """Let go of the file."""
        self._follower.close()

    def _take(self, lines: list[bytes]) -> None:
        events, skipped, unusable = self._decoder.events(lines)
        before = self.state.unusable
        self.state.skipped += skipped
        self.state.unusable += unusable
        if not events and not self.state.events and before < _HINT_LINES <= self.state.unusable:
            _LOG.warning("%s: no line can be used; does --preset fit?", self.state.name)
        if events:
            self.state.events += len(events)
            self.state.last_event = events[-1].ts
            self._sink.add_all(events)
