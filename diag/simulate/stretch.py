"""Slow the serving engine of a recording down, the same everywhere it shows.

The work done stays the recording's own: who asked for what, and when. What changes is how long each
piece of it takes: request records, the engine's histograms, the requests open at a time, the KV
blocks they hold and the steps that serve them. Not modelled: that finishing later shifts the counters
of finished requests by the added seconds, and queueing beyond what the recording had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from diag.model import Floats, Window
from diag.signals.frame import RawSeries
from diag.simulate.histograms import find_histograms, scaled
from diag.simulate.parts import Bundle, Record

__all__ = ["TIME_FAMILIES", "Factor", "cut", "open_requests", "slow_down"]

Factor = Callable[[Floats], Floats]
"""How many times longer work takes at each time (unix seconds, shape (n,)); > 0."""

TIME_FAMILIES = frozenset(
    {
        "http_request_duration_highr_seconds",
        "http_request_duration_seconds",
        "vllm:e2e_request_latency_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:request_decode_time_seconds",
        "vllm:request_inference_time_seconds",
        "vllm:request_prefill_time_seconds",
        "vllm:request_queue_time_seconds",
        "vllm:request_time_per_output_token_seconds",
        "vllm:time_to_first_token_seconds",
    }
)
"""Histograms of seconds: every observation takes longer, their number stays."""

_STEP_FAMILIES = frozenset({"vllm:iteration_tokens_total"})
_SECONDS_FIELDS = ("queue_seconds", "ttft_seconds", "duration_seconds")
_GRID_SECONDS = 0.25
_MARGIN_SECONDS = 3600.0


def slow_down(bundle: Bundle, factor: Factor) -> Bundle:
    """``bundle`` with all serving work taking ``factor`` times as long. Histogram counts are kept.

    Logs and traces are left out: their times would contradict the rest.
    """
    groups = {stem: tuple(_slower_group(group, factor)) for stem, group in bundle.metrics.items()}
    stretch = _Stretch(bundle.window, factor)
    rows = tuple(stretch.record(row) for row in bundle.requests)
    files = {path: data for path, data in bundle.files.items() if not path.startswith(("logs/", "traces/"))}
    slower = replace(bundle, metrics=groups, requests=rows, files=files)
    running = (_recounted(item, slower.requests) for item in slower.series("vllm:num_requests_running"))
    recounted = {_key(item): item for item in running}
    return replace(
        slower,
        metrics={
            stem: tuple(recounted.get(_key(item), item) for item in group) for stem, group in groups.items()
        },
    )


def cut(bundle: Bundle, window: Window) -> Bundle:
    """``bundle`` without the samples and records outside ``window``; logs and traces are kept whole."""

    def kept(item: RawSeries) -> RawSeries:
        inside = (item.times >= window.start) & (item.times <= window.end)
        return RawSeries(item.labels, item.times[inside], item.values[inside])

    metrics = {stem: tuple(map(kept, group)) for stem, group in bundle.metrics.items()}
    requests = tuple(row for row in bundle.requests if window.contains(float(row["ts"])))
    cut_bundle = replace(bundle, metrics=metrics, requests=requests)
    return cut_bundle.with_meta(window={"from": window.start, "to": window.end})


def open_requests(requests: Iterable[Record], instance: str, times: Floats) -> Floats:
    """How many requests to ``instance`` were being served at each of ``times``; same shape."""
    starts, ends = [], []
    for row in requests:
        if row.get("instance", instance) == instance and row.get("status") != "error":
            starts.append(float(row["ts"]) + float(row.get("queue_seconds") or 0.0))
            duration = row.get("duration_seconds")
            ends.append(np.inf if duration is None else float(row["ts"]) + float(duration))
    begun = np.searchsorted(np.sort(starts), times, side="right")
    ended = np.searchsorted(np.sort(ends), times, side="right")
    return (begun - ended).astype(np.float64)


class _Stretch:
    """Work in seconds at normal speed -> seconds it takes, by the area under 1 / factor."""

    def __init__(self, window: Window, factor: Factor) -> None:
        self._end = window.end
        self._times = np.arange(window.start - 60.0, window.end + _MARGIN_SECONDS, _GRID_SECONDS)
        speed = 1.0 / factor(self._times)
        self._work = np.concatenate([[0.0], np.cumsum(speed[:-1] * _GRID_SECONDS)])

    def seconds(self, start: float, work: float) -> float:
        done = np.interp(start, self._times, self._work) + work
        return float(np.interp(done, self._work, self._times)) - start

    def record(self, row: Record) -> dict[str, Any]:
        """One record; what would end after the recording becomes unknown, as in the recordings."""
        out = dict(row)
        start = float(row["ts"])
        for name in _SECONDS_FIELDS:
            if row.get(name) is not None:
                out[name] = round(self.seconds(start, float(row[name])), 4)
        if start + out.get("duration_seconds", 0.0) > self._end:
            for name in ("duration_seconds", "status", "output_tokens"):
                out.pop(name, None)
        if start + out.get("ttft_seconds", 0.0) > self._end:
            for name in ("ttft_seconds", "queue_seconds"):
                out.pop(name, None)
        return out


def _slower_group(group: tuple[RawSeries, ...], factor: Factor) -> Iterable[RawSeries]:
    changed: dict[tuple[tuple[str, str], ...], RawSeries] = {}
    for histogram in find_histograms(group, TIME_FAMILIES | _STEP_FAMILIES):
        middle = (histogram.times[:-1] + histogram.times[1:]) / 2.0
        longer = factor(middle)
        is_step = histogram.parts[0].labels["__name__"].removesuffix("_bucket") in _STEP_FAMILIES
        # Slower steps serve more requests each, so fewer steps carry the same tokens.
        for part in scaled(histogram, longer, 1.0 / longer if is_step else np.ones_like(longer)):
            changed[_key(part)] = part
    for item in group:
        if item.labels["__name__"] == "vllm:kv_cache_usage_perc":
            longer = np.maximum(factor(item.times), 0.0)
            yield RawSeries(item.labels, item.times, np.minimum(item.values * longer, 1.0))
        else:
            yield changed.get(_key(item), item)


def _recounted(item: RawSeries, requests: tuple[Record, ...]) -> RawSeries:
    if not requests:
        return item
    return RawSeries(item.labels, item.times, open_requests(requests, item.labels["instance"], item.times))


def _key(item: RawSeries) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item.labels.items()))
