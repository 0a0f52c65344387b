"""Spans of vLLM (OTLP as JSON) and how they meet the client's records.

vLLM sends one span called ``llm_request`` for a request that *finished*; aborted ones leave none.
Latencies are attributes in seconds. SGLang uses the same keys and adds the cached tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diag.records.decode import Unusable, decode_object, number_of
from diag.records.lines import Lines
from diag.records.record import BadLines, build_frame

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ENGINE_COLUMNS", "SpanRows", "join_spans", "read_spans"]

ENGINE_COLUMNS: tuple[str, ...] = (
    "engine_ttft_seconds",
    "engine_queue_seconds",
    "engine_prefill_seconds",
    "engine_decode_seconds",
    "engine_e2e_seconds",
)

_REQUEST_SPAN = "llm_request"
_LATENCY = "gen_ai.latency."
_NUMBERS = {
    "prompt_tokens": "gen_ai.usage.prompt_tokens",
    "output_tokens": "gen_ai.usage.completion_tokens",
    "cached_tokens": "gen_ai.usage.cached_tokens",
    "engine_ttft_seconds": f"{_LATENCY}time_to_first_token",
    "engine_queue_seconds": f"{_LATENCY}time_in_queue",
    "engine_prefill_seconds": f"{_LATENCY}time_in_model_prefill",
    "engine_decode_seconds": f"{_LATENCY}time_in_model_decode",
    "engine_e2e_seconds": f"{_LATENCY}e2e",
}
_KIND_PREFIX = re.compile(r"^(?:chatcmpl|cmpl|resp|embd|pool)-")
_ENGINE_SUFFIX = re.compile(r"-[0-9a-f]{8}$")


class SpanRows:
    """Columns filled span by span; ``skipped`` counts the spans that are no request."""

    def __init__(self) -> None:
        self.columns: dict[str, list[object]] = {
            name: [] for name in ("ts", "request_id", "model", "instance", "status", "source", *_NUMBERS)
        }
        self.length = 0
        self.skipped = 0

    def add_line(self, line: Mapping[str, object]) -> None:
        """Take in every span of one decoded line; raises ``Unusable`` when it holds none."""
        seen = False
        for resource, span in _spans_of(line):
            seen = True
            if span.get("name") != _REQUEST_SPAN:
                self.skipped += 1
                continue
            self._add(_attributes(resource.get("attributes")), span)
        if not seen:
            raise Unusable("no span in it")

    def _add(self, resource: Mapping[str, object], span: Mapping[str, object]) -> None:
        start = number_of(span.get("startTimeUnixNano"))
        if start is None or not start > 0:
            raise Unusable("a request span without startTimeUnixNano")
        held = _attributes(span.get("attributes"))
        numbers = {name: _number(held.get(key)) for name, key in _NUMBERS.items()}
        row: dict[str, object] = {
            **numbers,
            "ts": start / 1e9,
            "request_id": held.get("gen_ai.request.id"),
            "model": held.get("gen_ai.response.model"),
            "instance": resource.get("k8s.pod.name") or resource.get("host.name"),
            "status": "ok",
            "source": "vllm_spans",
        }
        for name, values in self.columns.items():
            values.append(row[name])
        self.length += 1

    def records(self) -> dict[str, list[object]]:
        """The columns of the record: what the engine saw stands for what nobody else measured."""
        return {
            **self.columns,
            "queue_seconds": self.columns["engine_queue_seconds"],
            "ttft_seconds": self.columns["engine_ttft_seconds"],
            "duration_seconds": self.columns["engine_e2e_seconds"],
        }


def read_spans(paths: Iterable[Path | str], *, bad: BadLines | None = None) -> pd.DataFrame:
    """``llm_request`` spans as request records (columns ``COLUMNS``), by arrival.

    Reads OTLP/JSON (``{"resourceSpans": …}`` or one resource-spans object a line) and the flat shape
    ``{"resource", "scope", "span"}``. Start-up spans are passed over; unusable lines are counted in
    ``bad``. Raises ``RecordsError`` when a file cannot be opened.
    """
    rows = SpanRows()
    bad = bad if bad is not None else BadLines()
    for path in map(Path, paths):
        for number, line in Lines(path):
            if line is None or not line.strip():
                continue
            try:
                rows.add_line(decode_object(line))
            except Unusable as error:
                bad.add(path, number, str(error))
    frame, _ = build_frame(rows.records(), rows.length)
    return frame


def _spans_of(line: Mapping[str, object]) -> Iterator[tuple[Mapping[str, object], Mapping[str, object]]]:
    if isinstance(line.get("span"), dict):
        yield _dict(line.get("resource")), _dict(line.get("span"))
        return
    whole = _dicts(line.get("resourceSpans")) if "resourceSpans" in line else [line]
    for resource_spans in whole:
        for scope_spans in _dicts(resource_spans.get("scopeSpans")):
            for span in _dicts(scope_spans.get("spans")):
                yield _dict(resource_spans.get("resource")), span


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _attributes(pairs: object) -> dict[str, object]:
    held: dict[str, object] = {}
    for pair in _dicts(pairs):
        value = pair.get("value")
        key = pair.get("key")
        if isinstance(key, str) and isinstance(value, dict) and value:
            held[key] = next(iter(value.values()))
    return held


def _number(value: object) -> float | None:
    try:
        return number_of(value)
    except Unusable:
        return None


# --- the join -----------------------------------------------------------------------------------


def _spellings(request_id: str) -> tuple[str, ...]:
    """From exact to loose: as it is, without the kind prefix, without the engine's random suffix."""
    bare = _KIND_PREFIX.sub("", request_id)
    return (request_id, bare, _ENGINE_SUFFIX.sub("", bare))


def join_spans(requests: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """``requests`` with the engine's columns (and token counts nobody else knew) filled from ``spans``.

    Both are record frames. Ids are matched exactly first, then without ``chatcmpl-``, then without
    the ``-<8 hex>`` that engines append; of several candidates the span nearest in time wins. Rows
    without a partner keep what they had; the number and order of rows stay.
    """
    partners = _partners(requests, spans)
    matched = np.flatnonzero(partners >= 0)
    joined = requests.copy()
    for name in (*ENGINE_COLUMNS, "prompt_tokens", "cached_tokens", "output_tokens"):
        values = joined[name].to_numpy(dtype=np.float64, copy=True)
        found = spans[name].to_numpy(dtype=np.float64)[partners[matched]]
        values[matched] = np.where(np.isnan(values[matched]), found, values[matched])
        joined[name] = values
    return joined


def _partners(requests: pd.DataFrame, spans: pd.DataFrame) -> NDArray[np.int64]:
    by_key: list[dict[str, list[int]]] = [{}, {}, {}]
    for position, request_id in enumerate(spans["request_id"]):
        if request_id is not None:
            for table, key in zip(by_key, _spellings(request_id), strict=True):
                table.setdefault(key, []).append(position)
    span_times = spans["ts"].to_numpy()
    partners = np.full(len(requests), -1, dtype=np.int64)
    for row, (request_id, time) in enumerate(zip(requests["request_id"], requests["ts"], strict=True)):
        if request_id is None:
            continue
        exact, bare, _ = _spellings(request_id)
        # The suffix is the engine's: only the span's id is cut, so that ids ending in hex stay apart.
        for table, key in zip(by_key, (exact, bare, bare), strict=True):
            if candidates := table.get(key):
                partners[row] = min(candidates, key=lambda at: abs(span_times[at] - time))
                break
    return partners
