"""Marked events: deploys, configuration changes, restarts, maintenance."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from diag.model import Event
from diag.records.decode import Unusable, decode_object, seconds_of
from diag.records.lines import Lines
from diag.records.record import BadLines

__all__ = ["EVENT_KINDS", "read_events"]

EVENT_KINDS = frozenset(("deploy", "config", "restart", "maintenance", "other"))


def read_events(paths: Iterable[Path | str], *, bad: BadLines | None = None) -> tuple[Event, ...]:
    """Events of ``events.jsonl`` files (``{"time", "kind", "target", "text"}`` a line) in order of time.

    ``time`` is unix seconds or ISO 8601. A kind we do not know becomes ``other`` and is kept in the
    text. Unusable lines are counted in ``bad``. Raises ``RecordsError`` when a file cannot be opened.
    """
    events: list[Event] = []
    bad = bad if bad is not None else BadLines()
    for path in map(Path, paths):
        for number, line in Lines(path):
            if line is None or not line.strip():
                continue
            try:
                events.append(_event(decode_object(line)))
            except Unusable as error:
                bad.add(path, number, str(error))
    return tuple(sorted(events, key=lambda event: (event.time, event.kind, event.target, event.text)))


def _event(line: dict[str, object]) -> Event:
    time = seconds_of(line.get("time"))
    if time is None:
        raise Unusable("an event without a time")
    kind, text = str(line.get("kind") or "other"), str(line.get("text") or "")
    if kind not in EVENT_KINDS:
        kind, text = "other", f"{kind}: {text}" if text else kind
    return Event(time, kind, str(line.get("target") or ""), text)
