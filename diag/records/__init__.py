"""Per-request records, spans, events and logs: what a service wrote down, as frames and facts."""

from __future__ import annotations

from diag.records.events import read_events
from diag.records.log import AccessInterval, LogRead, read_log
from diag.records.presets import PRESETS
from diag.records.record import COLUMNS, BadLine, BadLines, RequestsRead
from diag.records.requests import read_requests
from diag.records.spans import join_spans, read_spans

__all__ = [
    "COLUMNS",
    "PRESETS",
    "AccessInterval",
    "BadLine",
    "BadLines",
    "LogRead",
    "RequestsRead",
    "join_spans",
    "read_events",
    "read_log",
    "read_requests",
    "read_spans",
]
