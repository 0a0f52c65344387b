"""A flow as the pages of vLLM (V1 and V0) and SGLang show it, with their names, labels and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diag.model import Floats
from diag.simulate.observed import HISTOGRAMS
from diag.simulate.profiles import Profile, constant
from diag.simulate.reconstructed.flow import Flow
from diag.simulate.reconstructed.stage import Stage

__all__ = ["Page", "sglang", "vllm"]

_EARLY_TTFT = HISTOGRAMS["ttft_seconds"][:-5]  # up to 20 s: enough, and an eighth smaller


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows beyond its flow.

    ``gauges``: "running", "waiting", "kv" as posted, instead of the flow's own
    (NaN: as the flow says). ``more``: further series, name →
    (labels, values at the scrapes as a profile). ``counters``: name → (labels, profile of the rate).
    ``config``: labels of ``cache_config_info``. ``hits``: whether the prefix cache is asked at all. ``old``: V0's
    names. ``e2e_bounds``: of the end-to-end histogram. ``silent``: spells without a scrape beyond the flow's ``down``."""

    host: str = "gpu-0:8000"
    model: str = "model"
    gauges: Mapping[str, Profile] = field(default_factory=dict)
    more: Mapping[str, tuple[Mapping[str, str], Profile]] = field(default_factory=dict)
    counters: Mapping[str, tuple[Mapping[str, str], Profile]] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    config_after: Mapping[str, str] = field(default_factory=dict)
    resets: tuple[float, ...] = ()
    preemptions_per_second: Profile = constant(0.0)
    hits: bool = True
    old: bool = False
    engine: str = "0"
    cpu_ratio: Profile = constant(0.35)
    resident_bytes: Profile = constant(6.0e9)
    uptime_seconds: float = 86_400.0
    e2e_bounds: tuple[float, ...] = HISTOGRAMS["e2e_seconds"]
    silent: tuple[tuple[float, float], ...] = ()
    process: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """A flow at the scrapes: ``at`` clipped to spells of life, ``alive`` rows."""

    stage: Stage
    made: Flow
    page: Page
    labels: Mapping[str, str]
    alive: NDArray[np.bool_]

    @property
    def times(self) -> Floats:
        return self.stage.times

    @property
    def begun(self) -> tuple[float, ...]:
        """When a new process answers, inside the window."""
        return (*(end for _, end in self.made.traffic.down), *self.page.resets)

    def put(self, name: str, values: Floats, **labels: str) -> None:
        self.stage.put("engine", name, {**self.labels, **labels}, values, self.alive)

    def since_start(self, counter: Floats) -> Floats:
        """A counter as a process counts it that began anew after each spell without one."""
        result = counter.copy()
        for end in self.begun:
            later = self.times >= end
            if later.any():
                result[later] = counter[later] - counter[np.argmax(later)]
        return result

    def count(self, moments: Floats, weights: Floats | None = None) -> Floats:
        """Σ weights of what happened up to each scrape."""
        weights = np.ones_like(moments) if weights is None else weights
        order = np.argsort(moments, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(weights[order])])
        return self.since_start(sums[np.searchsorted(moments[order], self.times, side="right")])

    def histogram(
        self,
        name: str,
        bounds: tuple[float, ...],
        moments: Floats,
        values: Floats,
        weights: Floats | None = None,
        **labels: str,
    ) -> None:
        """A classic histogram of ``values`` observed at ``moments``."""
        weights = np.ones_like(moments) if weights is None else weights
        fits = np.isfinite(moments) & np.isfinite(values)
        moments, values, weights = moments[fits], values[fits], weights[fits]
        for bound in bounds:
            self.put(
                f"{name}_bucket",
                self.count(moments, weights * (values <= bound)),
                le=repr(float(bound)),
                **labels,
            )
        self.put(f"{name}_bucket", self.count(moments, weights), le="+Inf", **labels)
        self.put(f"{name}_sum", np.round(self.count(moments, weights * values), 4), **labels)
        self.put(f"{name}_count", self.count(moments, weights), **labels)


def vllm(stage: Stage, made: Flow, page: Page) -> None:
    """Put a vLLM's page on the stage."""
    labels = {"model_name": page.model, "instance": page.host, "job": "vllm"}
    if not page.old:
        labels["engine"] = page.engine
    seen = _Seen(stage, made, page, labels, stage.alive((*made.traffic.down, *page.silent)))
    _vllm_gauges(seen)
    _vllm_counters(seen)
    _vllm_times(seen)
    _vllm_lengths(seen)
    _own(seen)


def _gauge(seen: _Seen, name: str) -> Floats:
    """As posted, and the flow's own where nothing was (no profile, or NaN)."""
    made, times = seen.made, seen.times
    own = {"kv": made.kv_used, "running": made.running, "waiting": made.waiting}[name]
    posted = seen.page.gauges.get(name)
    values = np.full(len(times), np.nan) if posted is None else posted.over(times)
    missing = np.isnan(values)
    if missing.any():
        values = np.where(missing, np.round(own(times), 5), values)
    return values


def _vllm_gauges(seen: _Seen) -> None:
    page = seen.page
    seen.put("vllm:num_requests_running", _gauge(seen, "running"))
    seen.put("vllm:num_requests_waiting", _gauge(seen, "waiting"))
    seen.put("vllm:gpu_cache_usage_perc" if page.old else "vllm:kv_cache_usage_perc", _gauge(seen, "kv"))
    for name, (labels, course) in page.more.items():
        seen.put(name.partition("#")[0], course.over(seen.times), **labels)
    for name, (labels, rate) in page.counters.items():
        grown = np.round(seen.since_start(seen.stage.integral(rate, sigma=0.0)), 3)
        seen.put(name.partition("#")[0], grown, **labels)
    later = seen.times >= max(seen.begun, default=np.inf) if page.config_after else seen.times < -np.inf
    for config, rows in ((page.config, ~later), (page.config_after, later)):
        if config:
            labels = {**seen.labels, **config}
            seen.stage.put("engine", "vllm:cache_config_info", labels, np.ones(len(rows)), seen.alive & rows)


def _tokens(seen: _Seen) -> tuple[Floats, Floats, Floats]:
    """For each second of the grid: its end, tokens made in it, and the time between tokens."""
    made = seen.made
    grid, steps = made.grid, np.diff(made.tokens_done)
    active = np.searchsorted(np.sort(made.first), grid[:-1], side="right") - np.searchsorted(
        np.sort(np.maximum(made.freed, made.first)), grid[:-1], side="right"
    )
    tokens = np.maximum(active, 0) * steps
    with np.errstate(divide="ignore"):
        between = np.where(steps > 0, 1.0 / steps, np.nan)
    return grid[1:], tokens, between


def _vllm_counters(seen: _Seen) -> None:
    made, page = seen.made, seen.page
    ends, tokens, _ = _tokens(seen)
    seen.put("vllm:prompt_tokens_total", seen.count(made.first, made.prompt))
    seen.put(
        "vllm:generation_tokens_total",
        np.round(made.traffic.tokens_per_step * seen.count(ends, tokens) + seen.count(made.first)),
    )
    preempted = seen.since_start(np.round(seen.stage.integral(page.preemptions_per_second, sigma=0.0)))
    seen.put("vllm:num_preemptions_total", preempted)
    if not page.old:
        asked = made.prompt if page.hits else np.zeros_like(made.prompt)
        seen.put("vllm:prefix_cache_queries_total", seen.count(made.scheduled, asked))
        seen.put(
            "vllm:prefix_cache_hits_total", seen.count(made.scheduled, made.cached if page.hits else asked)
        )
    whole = (made.status != "aborted") & np.isfinite(made.first)
    finished = np.where(whole, made.freed, np.inf)
    seen.put("vllm:request_success_total", seen.count(finished), finished_reason="stop")
    route = {"handler": "/v1/chat/completions", "method": "POST"}
    served = np.where(made.status == "error", np.inf, made.closed)
    seen.put("http_requests_total", seen.count(served), status="2xx", **route)


def _vllm_times(seen: _Seen) -> None:
    made = seen.made
    finished = _finished(seen)
    bounds = HISTOGRAMS
    seen.histogram(
        "vllm:time_to_first_token_seconds", _EARLY_TTFT, made.first, _between(made.arrived, made.first)
    )
    name = "vllm:time_per_output_token_seconds" if seen.page.old else "vllm:inter_token_latency_seconds"
    ends, tokens, between = _tokens(seen)
    seen.histogram(name, bounds["inter_token_seconds"], ends, between, np.round(tokens))
    e2e = _between(made.arrived, made.freed)
    seen.histogram("vllm:e2e_request_latency_seconds", seen.page.e2e_bounds, finished, e2e)
    queued = _between(made.arrived, made.scheduled)
    seen.histogram("vllm:request_queue_time_seconds", bounds["queue_seconds"][:-3], finished, queued)
    prefill = _between(made.scheduled, made.first)
    seen.histogram("vllm:request_prefill_time_seconds", bounds["prefill_seconds"][:-4], finished, prefill)


def _between(early: Floats, late: Floats) -> Floats:
    """Seconds from one moment to the next, NaN where neither ever came."""
    with np.errstate(invalid="ignore"):
        return late - early


def _finished(seen: _Seen) -> Floats:
    made = seen.made
    done = (made.status != "aborted") & (made.status != "error") & np.isfinite(made.first)
    moments: Floats = np.where(done, made.freed, np.inf)
    return moments


def _vllm_lengths(seen: _Seen) -> None:
    made = seen.made
    finished, bounds = _finished(seen), HISTOGRAMS["prompt_tokens"]
    seen.histogram("vllm:request_prompt_tokens", bounds[4:], finished, made.prompt)
    seen.histogram("vllm:request_generation_tokens", bounds[:-3], finished, made.output)


def _own(seen: _Seen) -> None:
    """The process's own figures, and what the scraper notes."""
    page, stage = seen.page, seen.stage
    named = {"instance": page.host, "job": seen.labels["job"]}
    started = np.full(len(seen.times), stage.start - page.uptime_seconds)
    for end in seen.begun:
        started[seen.times >= end] = stage.start + end - 45.0
    if page.process:
        cpu = seen.since_start(stage.integral(page.cpu_ratio, 0.35 * page.uptime_seconds))
        for name, values in (
            ("process_cpu_seconds_total", np.round(cpu, 2)),
            ("process_resident_memory_bytes", np.round(stage.noisy(page.resident_bytes, 0.001))),
            ("process_start_time_seconds", started),
        ):
            stage.put("engine", name, named, values, seen.alive)
        stage.target("engine", named, (*seen.made.traffic.down, *page.silent))


def sglang(stage: Stage, made: Flow, page: Page) -> None:
    """Put an SGLang's page on the stage (names of 0.5)."""
    labels = {"model_name": page.model, "instance": page.host, "job": "sglang"}
    seen = _Seen(stage, made, page, labels, stage.alive((*made.traffic.down, *page.silent)))
    rank = {"engine_type": "unified", "pp_rank": "0", "tp_rank": "0"}
    ends, tokens, between = _tokens(seen)
    seen.put("sglang:num_running_reqs", _gauge(seen, "running"), **rank)
    seen.put("sglang:num_queue_reqs", _gauge(seen, "waiting"), **rank)
    seen.put("sglang:token_usage", _gauge(seen, "kv"), **rank)
    for name, (more, course) in page.more.items():
        seen.put(name.partition("#")[0], course.over(seen.times), **rank, **more)
    for name, (more, rate) in page.counters.items():
        seen.put(
            name.partition("#")[0],
            np.round(seen.since_start(stage.integral(rate, sigma=0.0)), 3),
            **rank,
            **more,
        )
    pool = np.full(len(seen.times), made.traffic.pool_tokens)
    seen.put("sglang:max_total_num_tokens", pool, **rank)
    seen.put("sglang:prompt_tokens_total", seen.count(made.first, made.prompt))
    seen.put("sglang:cached_tokens_total", seen.count(made.first, made.cached))
    seen.put(
        "sglang:generation_tokens_total",
        np.round(made.traffic.tokens_per_step * seen.count(ends, tokens) + seen.count(made.first)),
    )
    finished = _finished(seen)
    seen.put("sglang:num_requests_total", seen.count(finished))
    bounds = HISTOGRAMS
    ttft = tuple(bound for bound in _EARLY_TTFT if bound >= 0.1)
    seen.histogram("sglang:time_to_first_token_seconds", ttft, made.first, _between(made.arrived, made.first))
    seen.histogram(
        "sglang:inter_token_latency_seconds", bounds["inter_token_seconds"], ends, between, np.round(tokens)
    )
    seen.histogram(
        "sglang:e2e_request_latency_seconds",
        bounds["e2e_seconds"],
        finished,
        _between(made.arrived, made.freed),
    )
    seen.histogram(
        "sglang:queue_time_seconds",
        bounds["queue_seconds"][:-3],
        finished,
        _between(made.arrived, made.scheduled),
    )
    _own(seen)
