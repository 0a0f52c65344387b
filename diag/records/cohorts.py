"""Request records as arrays, with each request's place in its session.

The frame's columns are those of ``diag.records.record``; what is not known is NaN, or -1 for codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diag.model import Floats, Window

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Requests", "bins", "from_frame"]

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """All requests, arrival order, shape (n,). ``previous`` is the index of the session's request
    before (-1: none seen); ``turn`` counts from 0. Codes index into the name tuples, -1 unknown.

    ``waited``: time to first token, or for a request that had none when the records end the time it
    had waited by then (a lower bound); NaN for requests that left or failed without one.
    ``told``: whether its end is on record; ``aborted`` and ``failed`` are False where it is not."""

    ts: Floats
    prompt: Floats
    cached: Floats
    output: Floats
    ttft: Floats
    duration: Floats
    waited: Floats
    engine_ttft: Floats
    connect: Floats
    upstream: Floats
    session: Codes
    tenant: Codes
    instance: Codes
    told: Flags
    aborted: Flags
    failed: Flags
    previous: Codes
    turn: Codes
    structured: Floats
    sessions: tuple[str, ...]
    tenants: tuple[str, ...]
    instances: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ts)

    def within(self, window: Window) -> Flags:
        """Which requests arrived in ``window``."""
        flags: Flags = (self.ts >= window.start) & (self.ts <= window.end)
        return flags

    @property
    def history(self) -> Floats:
        """Tokens that the session's previous turn left behind (prompt and answer), at most this
        prompt's length; NaN for first turns and unknown lengths."""
        at = np.maximum(self.previous, 0)
        left = self.prompt[at] + np.nan_to_num(self.output[at])
        known: Floats = np.where(self.previous >= 0, np.minimum(left, self.prompt), np.nan)
        return known


def from_frame(frame: pd.DataFrame, end: float) -> Requests:
    """Read the columns; ``end`` is when the records stop."""
    frame = frame.sort_values("ts", kind="stable")
    ts = _numbers(frame, "ts")
    status = _strings(frame, "status")
    ttft, duration = _numbers(frame, "ttft_seconds"), _numbers(frame, "duration_seconds")
    session, sessions = _codes(frame, "session")
    tenant, tenants = _codes(frame, "tenant")
    instance, instances = _codes(frame, "instance")
    aborted, failed = status == "aborted", status == "error"
    still_open = ~np.isfinite(ttft) & ~np.isfinite(duration) & (status == "")
    waited = np.where(np.isfinite(ttft), ttft, np.where(still_open, np.maximum(end - ts, 0.0), np.nan))
    previous, turn = _turns(session)
    return Requests(
        ts=ts,
        prompt=_numbers(frame, "prompt_tokens"),
        cached=_numbers(frame, "cached_tokens"),
        output=_numbers(frame, "output_tokens"),
        ttft=ttft,
        duration=duration,
        waited=waited,
        engine_ttft=_numbers(frame, "engine_ttft_seconds"),
        connect=_numbers(frame, "upstream_connect_seconds"),
        upstream=_numbers(frame, "upstream_response_seconds"),
        session=session,
        tenant=tenant,
        instance=instance,
        told=status != "",
        aborted=aborted,
        failed=failed,
        previous=previous,
        turn=turn,
        structured=_numbers(frame, "structured"),
        sessions=sessions,
        tenants=tenants,
        instances=instances,
    )


def _numbers(frame: pd.DataFrame, column: str) -> Floats:
    if column not in frame:
        return np.full(len(frame), np.nan)
    import pandas as pd

    numbers: Floats = pd.to_numeric(frame[column], errors="coerce").to_numpy(
        dtype=np.float64, na_value=np.nan
    )
    return numbers


def _strings(frame: pd.DataFrame, column: str) -> NDArray[np.object_]:
    if column not in frame:
        return np.full(len(frame), "", dtype=object)
    strings: NDArray[np.object_] = frame[column].astype(object).where(frame[column].notna(), "").to_numpy()
    return strings


def _codes(frame: pd.DataFrame, column: str) -> tuple[Codes, tuple[str, ...]]:
    if column not in frame:
        return np.full(len(frame), -1, dtype=np.int64), ()
    import pandas as pd

    codes, names = pd.factorize(frame[column].astype(object), sort=True)
    return codes.astype(np.int64), tuple(str(name) for name in names)


def _turns(session: Codes) -> tuple[Codes, Codes]:
    """Previous request and turn number within each session, in one stable sort."""
    n = len(session)
    previous, turn = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    order = np.argsort(session, kind="stable")
    same = (session[order][1:] == session[order][:-1]) & (session[order][1:] >= 0)
    previous[order[1:][same]] = order[:-1][same]
    starts = np.concatenate([[0], np.flatnonzero(~same) + 1]) if n else np.empty(0, dtype=np.int64)
    begun = np.zeros(n, dtype=np.int64)
    begun[starts] = starts
    begun = np.maximum.accumulate(begun)
    turn[order] = np.arange(n) - begun
    turn[session < 0] = 0
    return previous, turn


def bins(requests: Requests, window: Window, step_seconds: float) -> Floats:
    """Edges of equal time bins with about eight requests each, none finer than ``step_seconds``."""
    count = int(requests.within(window).sum())
    wanted = max(count // 8, 1)
    width = max(window.seconds / min(max(wanted, 8), 400), step_seconds, 1.0)
    edges: Floats = np.arange(window.start, window.end + width, width)
    return edges
