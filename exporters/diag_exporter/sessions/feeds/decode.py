"""JSON lines into events.

A line of the plain shape goes the fast way (``typed``); one that does not fit, and every line of a
gateway's own shape, is read by the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from diag_exporter.sessions.events import Event
from diag_exporter.sessions.feeds.presets import (
    PLAIN_FIELDS,
    Preset,
    Skip,
    Unusable,
    plain_event,
)
from diag_exporter.sessions.feeds.typed import typed_reader
from diag_exporter.sessions.identity import Identifier

__all__ = ["LineDecoder", "decode_object"]


def decode_object(line: bytes) -> dict[str, object]:
    """The JSON object on ``line``; bytes that are not UTF-8 are replaced. Raises ``Unusable``."""
    try:
        try:
            value = json.loads(line)
        except UnicodeDecodeError:
            value = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise Unusable("not JSON") from None
    if not isinstance(value, dict):
        raise Unusable("not a JSON object")
    return value


class LineDecoder:
    """One log's lines into events.

    ``preset``: how the log spells a request (None: the plain shape). ``fields``: plain field -> path in
    the line (``{"prompt_tokens": "usage.prompt_tokens"}``), for logs that no preset knows.
    ``with_ids``: whether request ids are wanted (a joiner waits for them).
    """

    def __init__(
        self,
        identifier: Identifier,
        preset: Preset | None = None,
        *,
        fields: Mapping[str, str] | None = None,
        with_ids: bool = True,
    ) -> None:
        self._identifier = identifier
        self._preset = None if preset is plain_event else preset
        self._fields = dict(fields or {})
        nested = any("." in path for path in self._fields.values())
        self._typed = (
            None if self._preset is not None or nested else typed_reader(self._fields, with_ids=with_ids)
        )

    def events(self, lines: Sequence[bytes]) -> tuple[list[Event], int, int]:
        """Events on ``lines``, and how many were fine but no inference request, and unusable."""
        events, unread = self._typed(lines, self._identifier) if self._typed else ([], lines)
        skipped = unusable = 0
        for line in unread:
            try:
                events.append(self._slow(line))
            except Skip:
                skipped += 1
            except Unusable:
                unusable += 1
        return events, skipped, unusable

    def event(self, line: bytes) -> Event | None:
        """The event on one line; None when it is no inference request. Raises ``Unusable``."""
        if self._typed is not None and (found := self._typed((line,), self._identifier)[0]):
            return found[0]
        try:
            return self._slow(line)
        except Skip:
            return None

    def _slow(self, line: bytes) -> Event:
        row = decode_object(line)
        if self._preset is not None:
            return self._preset(row, self._identifier)
        return plain_event(_renamed(row, self._fields) if self._fields else row, self._identifier)


def _renamed(row: Mapping[str, object], fields: Mapping[str, str]) -> dict[str, object]:
    return {name: _dig(row, fields.get(name, name)) for name in PLAIN_FIELDS}


def _dig(row: object, path: str) -> object:
    if isinstance(row, Mapping) and path in row:
        return row[path]  # a name with a dot in it
    for part in path.split("."):
        if not isinstance(row, Mapping):
            return None
        row = row.get(part)
    return row
