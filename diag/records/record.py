"""The request record: its columns, and how rows of mixed quality become one frame.

Every reader ends in ``build_frame``, so that all sources agree on types, order and on what
"unknown" looks like: NaN in a number, ``None`` in a text, never 0 and never an empty string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from diag.model import Floats

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BAD_LINES_KEPT",
    "COLUMNS",
    "NUMBERS",
    "TEXTS",
    "BadLine",
    "BadLines",
    "RequestsRead",
    "build_frame",
    "status_of",
]

TEXTS: tuple[str, ...] = ("session", "tenant", "model", "instance", "request_id", "status", "source")
"""Columns of dtype object: ``str``, or ``None`` when unknown."""

NUMBERS: tuple[str, ...] = (
    "ts",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "queue_seconds",
    "ttft_seconds",
    "duration_seconds",
    "engine_ttft_seconds",
    "engine_queue_seconds",
    "engine_prefill_seconds",
    "engine_decode_seconds",
    "engine_e2e_seconds",
    "upstream_connect_seconds",
    "upstream_header_seconds",
    "upstream_response_seconds",
    "structured",
)
"""Columns of dtype float64: NaN when unknown."""

COLUMNS: tuple[str, ...] = (
    "ts",
    "session",
    "tenant",
    "model",
    "instance",
    "request_id",
    *NUMBERS[1:7],
    "status",
    *NUMBERS[7:],
    "source",
)
"""One request. ``ts`` (unix seconds) is its arrival and always known; ``*_seconds`` are as the
client or gateway saw them, ``engine_*_seconds`` as the engine's spans tell, ``upstream_*_seconds``
as a reverse proxy measured them (summed over the upstreams it tried). ``structured``: 1 for a request
with a grammar, 0 for one without. ``status`` is ``ok``,
``error``, ``aborted`` or ``None``; ``source`` names the preset that read the line."""

BAD_LINES_KEPT = 20
"""How many bad lines are named; the rest is only counted."""

_STATUS = {
    "ok": "ok", "success": "ok", "succeeded": "ok", "completed": "ok", "complete": "ok", "stop": "ok",
    "error": "error", "failure": "error", "failed": "error", "timeout": "error",
    "aborted": "aborted", "abort": "aborted", "cancelled": "aborted", "canceled": "aborted",
    "disconnected": "aborted", "client_disconnected": "aborted",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be used: where it stands (1-based) and why."""

    file: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class RequestsRead:
    """What came out of request logs.

    ``read`` counts usable lines (before ``window`` cuts them), ``bad_total`` unusable ones,
    ``skipped`` lines that are fine but no inference request (a health check, a start-up span, an
    answer from the gateway's own cache). Together they are the non-blank lines. ``bad`` names the
    first ``BAD_LINES_KEPT`` unusable lines.
    """

    frame: pd.DataFrame
    read: int
    bad: tuple[BadLine, ...]
    notes: tuple[str, ...]
    bad_total: int = 0
    skipped: int = 0


class BadLines:
    """Counts unusable lines and remembers the first few."""

    __slots__ = ("kept", "total")

    def __init__(self) -> None:
        self.kept: list[BadLine] = []
        self.total = 0

    def add(self, file: Path | str, line: int, why: str) -> None:
        """Count one, and keep it while there is room."""
        self.total += 1
        if len(self.kept) < BAD_LINES_KEPT:
            self.kept.append(BadLine(str(file), line, why))


def status_of(value: object) -> str | None:
    """``ok``, ``error`` or ``aborted`` for a word or an HTTP status; None when it says neither.

    499 is nginx's mark for a client that left; 0 means that no status was ever sent.
    """
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip().lower()
    if text in _STATUS:
        return _STATUS[text]
    if not (text.isascii() and text.isdigit()) or len(text) > 3:
        return None
    code = int(text)
    if code == 499:
        return "aborted"
    if 200 <= code < 400:
        return "ok"
    return "error" if 400 <= code < 600 else None


def build_frame(rows: Mapping[str, Sequence[object]], length: int) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Columns of raw values to a frame in arrival order, and notes on values that were set aside.

    ``rows`` maps column names to ``length`` values each; a column that is absent is unknown
    throughout. Numbers that are negative or infinite become NaN, since no time and no count is.
    """
    import pandas as pd

    notes: list[str] = []
    columns: dict[str, object] = {}
    for name in COLUMNS:
        values = rows.get(name)
        if name in NUMBERS:
            columns[name] = _numbers(name, values, length, notes)
        else:
            columns[name] = pd.Series(_texts(name, values, length, notes), dtype=object)
    frame = pd.DataFrame(columns, columns=list(COLUMNS))
    order = np.argsort(frame["ts"].to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True), tuple(notes)


def _numbers(name: str, values: Sequence[object] | None, length: int, notes: list[str]) -> Floats:
    if values is None:
        return np.full(length, np.nan)
    array = np.array(values, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        odd = np.isinf(array) | (array < 0)
    if odd.any():
        notes.append(f"{int(odd.sum())} values of {name} were negative or infinite and count as unknown")
        array[odd] = np.nan
    return array


def _texts(name: str, values: Sequence[object] | None, length: int, notes: list[str]) -> list[str | None]:
    if values is None:
        return [None] * length
    known = {value: _text(value) for value in set(values)}
    if name == "status":
        known, odd = {value: status_of(value) for value in known}, known
        strange = Counter(value for value in values if odd[value] is not None and known[value] is None)
        for value, count in sorted(strange.items(), key=lambda item: str(item[0])):
            notes.append(f"{count} records have the status {value!r}, which is none of ok, error, aborted")
    return [known[value] for value in values]


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).strip() or None
