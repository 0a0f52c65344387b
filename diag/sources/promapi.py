"""The query API that Prometheus, VictoriaMetrics, Thanos and Mimir share: calls in, numpy out."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np

from diag.errors import NotPrometheus, QueryRejected, QueryTooExpensive
from diag.model import Floats, Window
from diag.signals.frame import Grid, RawSeries
from diag.sources.access import Client, Reply

__all__ = ["PARALLEL_CALLS", "Api", "Ranged"]

PARALLEL_CALLS = 8
_STEPS_PER_CALL = 10_000  # Prometheus refuses more than 11,000.
_SAMPLES_PER_CALL = 2_000_000
_HALVINGS = 4
_OVERLAP_SECONDS = 1.0
# VictoriaMetrics moves a range's ends to round times, and rewrites its last half minute, unless told
# not to; the others ignore what they don't know.
_PLAIN = {"nocache": "1", "latency_offset": "1ms"}
_TOO_MUCH = (
    "exceeded maximum resolution",
    "too many",
    "too large",
    "limit",
    "timed out",
    "timeout",
    "memory",
)

_T = TypeVar("_T")


class _Answer(msgspec.Struct):
    status: str = ""
    errorType: str = ""
    error: str = ""
    warnings: list[str] = []
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Point(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Row(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, float]] = []


class _OddRow(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Vector(msgspec.Struct):
    resultType: str
    result: list[_Point]


class _Matrix(msgspec.Struct):
    resultType: str
    result: list[_Row]


class _OddMatrix(msgspec.Struct):
    resultType: str
    result: list[_OddRow]


@dataclass(frozen=True, slots=True, eq=False)
class Ranged:
    """One row of a range query: labels, and values on the grid (NaN where there is none)."""

    labels: Mapping[str, str]
    values: Floats


class Api:
    """Typed calls of one store. Every failure is one of the ``SourceError`` leaves."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._warnings: dict[str, None] = {}

    @property
    def url(self) -> str:
        """Where it is, without credentials."""
        return self._client.url

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the store warned of so far (Thanos: a part of it did not answer), each once."""
        return tuple(self._warnings)

    def open(self) -> None:
        """Make sure that a query API answers. Raises ``NotPrometheus`` and the other leaves."""
        self.instant("vector(1)", None)

    def instant(self, query: str, at: float | None) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each element of an instant vector at ``at`` (unix seconds)."""
        params = {"query": query, **_PLAIN}
        if at is not None:
            params["time"] = _time(at)
        answer = self._call("/api/v1/query", params, query)
        return [(one.metric, float(one.value[1])) for one in self._decoded(answer, _Vector).result]

    def ranged(self, query: str, grid: Grid) -> list[Ranged]:
        """``query`` on every time of ``grid``, in calls of at most 10,000 steps."""
        size = grid.times.size
        rows: dict[tuple[tuple[str, str], ...], Floats] = {}
        for first in range(0, size, _STEPS_PER_CALL):
            self._range_into(rows, query, grid, first, min(first + _STEPS_PER_CALL, size), _HALVINGS)
        return [Ranged(dict(key), rows[key]) for key in sorted(rows)]

    def _range_into(
        self, rows: dict[tuple[tuple[str, str], ...], Floats], query: str, grid: Grid,
        first: int, past: int, halvings: int,
    ) -> None:  # fmt: skip
        start, end = grid.start + first * grid.step, grid.start + (past - 1) * grid.step
        params = {"query": query, "start": _time(start), "end": _time(end), "step": _time(grid.step)}
        try:
            answer = self._call("/api/v1/query_range", {**params, **_PLAIN}, query)
        except QueryTooExpensive:
            if not halvings or past - first < 2:
                raise
            middle = (first + past) // 2
            self._range_into(rows, query, grid, first, middle, halvings - 1)
            self._range_into(rows, query, grid, middle, past, halvings - 1)
            return
        for labels, times, values in self._matrix(answer):
            key = tuple(sorted((k, v) for k, v in labels.items() if k != "__name__"))
            row = rows.setdefault(key, np.full(grid.times.size, np.nan))
            where = np.rint((times - grid.start) / grid.step).astype(np.intp)
            inside = (where >= first) & (where < past)
            row[where[inside]] = values[inside]

    def samples(
        self, selector: str, window: Window, series: int, scrape_seconds: float
    ) -> Iterator[RawSeries]:
        """Raw samples of ``selector`` inside ``window``, in calls of about two million samples.

        ``series`` and ``scrape_seconds`` are estimates that size the calls. Yields whole series.
        """
        per_call = max(60.0, _SAMPLES_PER_CALL / max(1, series) * max(scrape_seconds, 0.1))
        calls = max(1, math.ceil(window.seconds / per_call))
        length = window.seconds / calls
        pieces: dict[tuple[tuple[str, str], ...], list[tuple[Floats, Floats]]] = {}
        for number in range(calls):
            end = window.start + (number + 1) * length
            # Stores differ on whether the window's older end belongs to it: ask for more, cut, merge.
            query = f"{selector}[{round((length + _OVERLAP_SECONDS) * 1000)}ms]"
            answer = self._call("/api/v1/query", {"query": query, "time": _time(end), **_PLAIN}, query)
            for labels, times, values in self._matrix(answer):
                pieces.setdefault(tuple(sorted(labels.items())), []).append((times, values))
        for key in sorted(pieces):
            times = np.concatenate([piece[0] for piece in pieces[key]])
            values = np.concatenate([piece[1] for piece in pieces[key]])
            times, where = np.unique(times, return_index=True)
            inside = (times >= window.start) & (times <= window.end)
            if inside.any():
                yield RawSeries(dict(key), times[inside], values[where][inside])

    def parallel(self, jobs: Sequence[tuple[str, Grid]]) -> Iterator[list[Ranged] | Exception]:
        """The answers to range queries in order, at most eight calls at once; failures as values."""
        with ThreadPoolExecutor(max_workers=PARALLEL_CALLS) as pool, _gc_paused():
            futures = [pool.submit(self.ranged, query, grid) for query, grid in jobs]
            for future in futures:
                error = future.exception()
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield error if isinstance(error, Exception) else future.result()

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def _call(self, path: str, params: dict[str, str], query: str) -> _Answer:
        reply = self._client.get(path, params)
        try:
            answer = msgspec.json.decode(reply.content, type=_Answer)
        except msgspec.MsgspecError:
            raise self._not_an_api(reply) from None
        if answer.status == "success" and reply.status < 300:
            self._warnings.update(dict.fromkeys(one.split("\n", 1)[0][:200] for one in answer.warnings))
            return answer
        if answer.status == "error" or answer.error:
            raise self._said_no(answer, query)
        raise self._not_an_api(reply)

    def _said_no(self, answer: _Answer, query: str) -> QueryRejected | QueryTooExpensive:
        said = (answer.error.strip().splitlines() or [answer.errorType or "no reason given"])[0][:300]
        if query and (answer.errorType == "timeout" or any(sign in said for sign in _TOO_MUCH)):
            return QueryTooExpensive(
                f"{self.url} found a query too expensive: {said}",
                hint="ask for a shorter window or narrow it with --match",
            )
        return QueryRejected(
            f"{self.url} refused a query: {said}", hint="is it a Prometheus-compatible store?"
        )

    def _not_an_api(self, reply: Reply) -> NotPrometheus:
        html = "html" in reply.content_type or reply.content.lstrip()[:1] == b"<"
        what = "an HTML page" if html else "something that is no Prometheus answer"
        return NotPrometheus(
            f"{self.url} answers with {what}",
            hint="is it behind a log-in, or does a path prefix lack, as /prometheus or /select/0/prometheus?",
        )

    def _matrix(self, answer: _Answer) -> Iterator[tuple[dict[str, str], Floats, Floats]]:
        rows: Sequence[_Row | _OddRow]
        try:
            rows = msgspec.json.decode(answer.data, type=_Matrix, strict=False).result
        except msgspec.MsgspecError:
            # "+Inf" is a number to Prometheus and not to the fast decoder.
            rows = self._decoded(answer, _OddMatrix).result
        for row in rows:
            times = np.array([point[0] for point in row.values], dtype=np.float64)
            yield row.metric, times, np.array([float(point[1]) for point in row.values], dtype=np.float64)

    def _decoded(self, answer: _Answer, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(answer.data, type=kind)
        except msgspec.MsgspecError:
            raise NotPrometheus(
                f"{self.url} answers in a shape that is not Prometheus'",
                hint="is a proxy rewriting its answers?",
            ) from None


@contextmanager
def _gc_paused() -> Iterator[None]:
    """No collections while millions of small objects are made: they dominate parsing otherwise."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _time(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".")
