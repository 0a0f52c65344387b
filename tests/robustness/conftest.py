"""Nine ways in which real telemetry is worse than a recording, as pure functions, and a quick triage.

A mutilation never touches the label: the right answer stays the right answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from diag.model import Floats, Verdict
from diag.signals.frame import RawSeries
from diag.simulate import Bundle, load, save

Mutilation = Callable[[Bundle], Bundle]

_SERVING_FILE = "engine"
_GPU_PREFIXES = ("DCGM_", "nvidia_smi_")
_GPU_JOBS = frozenset({"dcgm", "nvidia_gpu_exporter"})
_COUNTER_ENDINGS = ("_total", "_sum", "_count", "_bucket")

# vLLM 0.9.0: what it called by other names, and every other family it had (reference: the names by
# version; families that came later are left out, their look-ups by source or reason with them).
_OLD_NAMES = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:prefix_cache_queries_total": "vllm:gpu_prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total": "vllm:gpu_prefix_cache_hits_total",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
}
_OLD_FAMILIES = frozenset(
    {
        "vllm:cache_config_info",
        "vllm:e2e_request_latency_seconds",
        "vllm:generation_tokens_total",
        "vllm:iteration_tokens_total",
        "vllm:num_preemptions_total",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:prompt_tokens_total",
        "vllm:request_decode_time_seconds",
        "vllm:request_generation_tokens",
        "vllm:request_inference_time_seconds",
        "vllm:request_max_num_generation_tokens",
        "vllm:request_params_max_tokens",
        "vllm:request_params_n",
        "vllm:request_prefill_time_seconds",
        "vllm:request_prompt_tokens",
        "vllm:request_queue_time_seconds",
        "vllm:request_success_total",
        "vllm:time_to_first_token_seconds",
    }
)
_LATER_LABELS = frozenset({"kv_cache_size_tokens", "kv_cache_max_concurrency"})


def _each(bundle: Bundle, change: Callable[[RawSeries], Iterable[RawSeries]]) -> Bundle:
    metrics = {
        stem: tuple(new for old in group for new in change(old)) for stem, group in bundle.metrics.items()
    }
    return replace(bundle, metrics={stem: group for stem, group in metrics.items() if group})


def _only(bundle: Bundle, keep: Callable[[RawSeries], bool]) -> Bundle:
    return _each(bundle, lambda item: [item] if keep(item) else [])


def _renamed(item: RawSeries, name: str) -> RawSeries:
    return RawSeries({**item.labels, "__name__": name}, item.times, item.values)


def no_gpu(bundle: Bundle) -> Bundle:
    """Nobody runs a GPU exporter."""

    def kept(item: RawSeries) -> bool:
        gpu = item.labels["__name__"].startswith(_GPU_PREFIXES) or item.labels.get("job") in _GPU_JOBS
        return not gpu

    return _only(bundle, kept)


def no_requests(bundle: Bundle) -> Bundle:
    """Nobody logs requests: neither records nor spans."""
    files = {path: data for path, data in bundle.files.items() if not path.startswith("traces/")}
    return replace(bundle, requests=(), files=files)


def no_node(bundle: Bundle) -> Bundle:
    """Nobody runs node_exporter."""
    return _only(bundle, lambda item: item.labels.get("job") != "node")


def half_lost(bundle: Bundle) -> Bundle:
    """Every second scrape or so never came, at random, all series of a target together."""

    @cache
    def lost(target: str, scrapes: int) -> Floats:
        rng = np.random.default_rng([7, scrapes, *target.encode()])
        return rng.random(scrapes)

    grids: dict[str, Floats] = {}
    for item in bundle.series():
        target = item.labels.get("instance", "")
        grids[target] = np.union1d(grids.get(target, np.array([])), item.times)

    def thinned(item: RawSeries) -> Iterable[RawSeries]:
        grid = grids[item.labels.get("instance", "")]
        chance = lost(item.labels.get("instance", ""), grid.size)
        kept = chance[np.searchsorted(grid, item.times)] < 0.5
        return [RawSeries(item.labels, item.times[kept], item.values[kept])] if kept.any() else []

    return _each(bundle, thinned)


def counter_reset(bundle: Bundle) -> Bundle:
    """The serving processes' counters start again from 0 after three tenths of the window."""
    at = bundle.window.start + 0.3 * bundle.window.seconds

    def restarted(item: RawSeries) -> Iterable[RawSeries]:
        if not item.labels["__name__"].startswith(("vllm:", "http_")):
            return [item]
        if not item.labels["__name__"].endswith(_COUNTER_ENDINGS):
            return [item]
        later = item.times >= at
        before = item.values[~later]
        values = np.where(later, item.values - (before[-1] if before.size else 0.0), item.values)
        return [RawSeries(item.labels, item.times, np.where(later & (values < 0), item.values, values))]

    return _each(bundle, restarted)


def old_names(bundle: Bundle) -> Bundle:
    """The metrics an operator of vLLM 0.9.0 has."""

    def aged(item: RawSeries) -> Iterable[RawSeries]:
        name = item.labels["__name__"]
        if not name.startswith("vllm:"):
            return [item]
        family = next((name.removesuffix(e) for e in ("_bucket", "_sum", "_count") if name.endswith(e)), name)
        if family in _OLD_NAMES:
            return [_renamed(item, name.replace(family, _OLD_NAMES[family], 1))]
        if family not in _OLD_FAMILIES:
            return []
        labels = {key: value for key, value in item.labels.items() if key not in _LATER_LABELS}
        return [RawSeries(labels, item.times, item.values)]

    return _each(bundle, aged)


def underscores(bundle: Bundle) -> Bundle:
    """A negotiated OpenMetrics page, or Ray: ``vllm_`` for ``vllm:``."""
    return _each(bundle, lambda item: [_renamed(item, item.labels["__name__"].replace("vllm:", "vllm_", 1))])


def duplicate_target(bundle: Bundle) -> Bundle:
    """Two scrape jobs find the serving process, one by its name and one by its address."""

    def twice(item: RawSeries) -> Iterable[RawSeries]:
        if item.labels.get("job") != "vllm":
            return [item]
        instance = item.labels["instance"].replace("vllm-", "10.0.0.1")
        other = {**item.labels, "instance": instance, "job": "kubernetes-pods"}
        return [item, RawSeries(other, item.times + 0.41, item.values)]

    return _each(bundle, twice)


def steps_of_15s(bundle: Bundle) -> Bundle:
    """Prometheus' usual scrape interval in clusters: one sample in every 15 seconds is left."""

    def thinned(item: RawSeries) -> Iterable[RawSeries]:
        _, first = np.unique(np.floor((item.times - bundle.window.start) / 15.0), return_index=True)
        return [RawSeries(item.labels, item.times[first], item.values[first])]

    return _each(bundle, thinned).with_meta(step_seconds=15)


MUTILATIONS: Mapping[str, Mutilation] = {
    "no_gpu": no_gpu,
    "no_requests": no_requests,
    "no_node": no_node,
    "half_lost": half_lost,
    "counter_reset": counter_reset,
    "old_names": old_names,
    "underscores": underscores,
    "duplicate_target": duplicate_target,
    "steps_of_15s": steps_of_15s,
}


@pytest.fixture(scope="session")
def mutilations() -> Mapping[str, Mutilation]:
    """The nine mutilations by name."""
    return MUTILATIONS


@pytest.fixture(scope="session")
def recording(incidents: Path) -> Callable[[str], Bundle]:
    """A recording by name, taken apart once."""
    return cache(lambda name: load(incidents / name))


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Bundle], Verdict]:
    """The verdict on a bundle. Its label and notes are taken out first: they are never an input."""
    from diag.api import triage

    def judge(bundle: Bundle) -> Verdict:
        folder = tmp_path_factory.mktemp("bundle")
        return triage(save(bundle.with_meta(label=None, notes=""), folder))

    return judge
