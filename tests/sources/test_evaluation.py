"""What all sources over raw samples share: engines found, gaps, facts, frozen pages, second scrapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from diag.engines import ENGINES, engine
from diag.errors import UsageError
from diag.model import Window
from diag.signals.algebra import Matcher
from diag.signals.frame import Grid, RawSeries
from diag.sources.duplicates import subset_groups
from diag.sources.evaluation import RawStore, nominal_seconds
from diag.sources.facts import Sighting, facts_from
from diag.sources.naming import canonical_labels, host_of, metric_names, serves

Raw = Callable[..., RawSeries]
_GRID = Grid(1000.0, 1200.0, 2.0, 10.0)


@pytest.fixture
def raw() -> Raw:
    """One series: name, values, labels; every two seconds from 1000 on."""

    def build(
        name: str, values: Sequence[float], every: float = 2.0, start: float = 1000.0, **labels: str
    ) -> RawSeries:
        times = start + every * np.arange(len(values), dtype=np.float64)
        held = {"__name__": name, "instance": "e:8000", "job": "vllm", **labels}
        return RawSeries(held, times, np.array(values, dtype=np.float64))

    return build


def _up_to(count: int) -> list[float]:
    return [float(place) for place in range(count)]


def test_a_gap_says_why_and_how_to_get_it(raw: Raw) -> None:
    store = RawStore(
        [raw("vllm:num_requests_running", [1.0] * 50), raw("DCGM_FI_DEV_GPU_UTIL", [1.0] * 50, UUID="GPU-1")]
    )
    fetched = store.fetch(
        ["running_requests", "preemptions_per_second", "gpu_foreign_sm_ratio", "node_load1"], _GRID
    )
    assert set(fetched.series) == {"running_requests"}
    said = {gap.signal: gap for gap in fetched.gaps}
    assert (
        said["preemptions_per_second"].reason
        == "vllm:num_preemptions_total has no values in this window (vLLM)"
    )
    assert said["gpu_foreign_sm_ratio"].reason.startswith("dcgm-exporter does not export it: ")
    assert said["node_load1"].reason == "nothing here exports it"
    assert "node_exporter" in said["node_load1"].how_to_get


def test_a_ratio_of_nothing_to_nothing_is_a_gap(raw: Raw) -> None:
    still = [raw("vllm:num_requests_running", [0.0] * 50)] + [
        raw(f"vllm:prefix_cache_{what}_total", [5.0] * 50) for what in ("hits", "queries")
    ]
    fetched = RawStore(still).fetch(["prefix_cache_hit_ratio"], _GRID)
    assert fetched.series == {}
    assert fetched.gaps[0].signal == "prefix_cache_hit_ratio"


def test_matchers_narrow_and_bad_patterns_are_told(raw: Raw) -> None:
    store = RawStore([raw("vllm:num_requests_running", [1.0] * 50, instance=who) for who in ("a:1", "b:1")])
    one = store.fetch(["running_requests"], _GRID, [Matcher("instance", "=~", "a.*")])
    assert [series.labels["instance"] for series in one.series["running_requests"]] == ["a:1"]
    assert [
        r.labels["instance"] for r in store.within(Window(0, 2000), [Matcher("instance", "!=", "a:1")])
    ] == ["b:1"]
    with pytest.raises(UsageError, match="regular expression"):
        list(store.within(Window(0, 2000), [Matcher("instance", "=~", "(")]))


def test_a_slower_exporter_is_looked_at_over_a_longer_span(raw: Raw) -> None:
    store = RawStore(
        [
            raw("vllm:num_requests_running", _up_to(100)),
            raw("node_load1", [1.0] * 7, every=30.0, instance="n:9100", job="node"),
            raw(
                "node_cpu_seconds_total",
                _up_to(7),
                every=30.0,
                instance="n:9100",
                job="node",
                mode="user",
                cpu="0",
            ),
        ]
    )
    fetched = store.fetch(["node_load1", "node_cpu_user_ratio", "running_requests"], _GRID)
    assert not np.isnan(fetched.series["node_load1"][0].values).any()
    assert not np.isnan(fetched.series["node_cpu_user_ratio"][0].values[20:]).any()
    # The engine's own look-back stays short: the mean of its last five samples, not of sixty seconds.
    assert fetched.series["running_requests"][0].values[50] == pytest.approx(
        np.mean([45, 46, 47, 48, 49, 50])
    )


@pytest.mark.parametrize(
    ("measured", "nominal"), [(1.998, 2.0), (15.0, 15.0), (14.6, 15.0), (0.5, 0.5), (2.5, 2.5)]
)
def test_measured_intervals_become_configured_ones(measured: float, nominal: float) -> None:
    assert nominal_seconds(measured) == nominal


def _page(
    raw: Raw, cpu: list[float] | None, tokens: list[float], running: list[float], up: list[float]
) -> RawStore:
    rows = [
        raw("vllm:generation_tokens_total", tokens),
        raw("vllm:num_requests_running", running),
        raw("up", up),
    ]
    return RawStore(rows if cpu is None else [*rows, raw("process_cpu_seconds_total", cpu)])


def _stalls(store: RawStore) -> list[Window]:
    return list(store.fetch(["running_requests"], _GRID).page_stalls.get("e:8000", ()))


def test_a_frozen_page_is_told_from_an_idle_one(raw: Raw) -> None:
    frozen = [*_up_to(40), *[40.0] * 60]
    ones = [1.0] * 100
    assert _stalls(_page(raw, frozen, frozen, ones, ones)) == [Window(1080.0, 1198.0)]
    # Idle: nothing moves but the CPU time of serving the page.
    assert _stalls(_page(raw, _up_to(100), [5.0] * 100, ones, ones)) == []
    # The CPU counter's ticks are coarse; something else on the page moved.
    assert _stalls(_page(raw, frozen, _up_to(100), ones, ones)) == []


def test_a_page_that_could_not_be_had_is_not_frozen(raw: Raw) -> None:
    frozen = [*_up_to(40), *[40.0] * 60]
    assert _stalls(_page(raw, frozen, frozen, [1.0] * 100, [1.0] * 60 + [0.0] * 40)) == []
    holes = raw("process_cpu_seconds_total", [7.0] * 12, every=30.0)
    few = [raw("vllm:num_requests_running", [1.0] * 12, every=30.0), raw("up", [1.0] * 12, every=30.0), holes]
    assert RawStore(few).fetch(["running_requests"], Grid(1000, 1400, 30, 120)).page_stalls != {}
    short = [raw("vllm:num_requests_running", [1.0] * 9), raw("process_cpu_seconds_total", [7.0] * 9)]
    assert RawStore(short).fetch(["running_requests"], _GRID).page_stalls == {}


def test_without_a_cpu_counter_only_a_busy_page_is_suspect(raw: Raw) -> None:
    still, ones = [5.0] * 100, [1.0] * 100
    assert _stalls(_page(raw, None, still, [0.0] * 100, ones)) == []
    assert _stalls(_page(raw, None, still, [3.0] * 100, ones)) == [Window(1000.0, 1198.0)]


def test_a_target_scraped_twice_counts_once(raw: Raw) -> None:
    def scrape(job: str, shift: float, slope: float = 1.0) -> list[RawSeries]:
        return [
            raw(
                "vllm:generation_tokens_total",
                [500 + slope * n for n in range(100)],
                start=1000.0 + shift,
                job=job,
            ),
            raw("vllm:num_requests_running", [4.0] * 100, start=1000.0 + shift, job=job),
            raw("up", [1.0] * 100, start=1000.0 + shift, job=job),
        ]

    one = RawStore(scrape("a", 0.0)).fetch(["generation_tokens_per_second", "running_requests"], _GRID)
    two = RawStore([*scrape("a", 0.0), *scrape("b", 0.7)]).fetch(
        ["generation_tokens_per_second", "running_requests"], _GRID
    )
    for name, rows in one.series.items():
        assert np.array_equal(rows[0].values, two.series[name][0].values, equal_nan=True), name
    assert two.notes == ("e:8000 is scraped twice (job=a and job=b); counted once",)
    # Two engines that merely share an address (two clusters' "localhost:8000") are not one.
    different = RawStore([*scrape("a", 0.0), *scrape("b", 0.7, slope=30.0)])
    assert different.fetch(["running_requests"], _GRID).notes == ()


def test_process_starts_decide_who_is_the_same(raw: Raw) -> None:
    def scrape(job: str, start: float) -> list[RawSeries]:
        return [
            raw("vllm:num_requests_running", [4.0] * 9, job=job),
            raw("process_start_time_seconds", [start] * 9, job=job),
        ]

    assert RawStore([*scrape("a", 17.25), *scrape("b", 17.25)]).notes != ()
    assert RawStore([*scrape("a", 17.25), *scrape("b", 99.0)]).notes == ()


def test_only_a_scraper_that_adds_nothing_is_dropped_in_a_store() -> None:
    covers = {
        "a": frozenset({"1", "2"}),
        "b": frozenset({"2"}),
        "c": frozenset({"2", "3"}),
        "d": frozenset({"1", "2"}),
    }
    assert subset_groups(covers) == [("d", "a"), ("b", "a")]


def test_facts_change_with_their_labels() -> None:
    def seen(first: float, last: float, **labels: str) -> Sighting:
        return Sighting({"instance": "e:1", "engine": "0", "block_size": "16", **labels}, first, last)

    facts = facts_from(
        engine("vllm"),
        [
            seen(50.0, 90.0, num_gpu_blocks="100", enable_prefix_caching="False"),
            seen(1.0, 40.0, num_gpu_blocks="900", enable_prefix_caching="False"),
            seen(1.0, 40.0, num_gpu_blocks="900", enable_prefix_caching="False", engine="1"),
        ],
    )
    told = [(fact.name, fact.value, fact.since, fact.until) for fact in facts if fact.name != "cache_config"]
    assert told == [
        ("block_size_tokens", "16", 1.0, 90.0),
        ("kv_blocks", "900", 1.0, 40.0),
        ("kv_blocks", "100", 50.0, 90.0),
        ("kv_capacity_tokens", "14400", 1.0, 40.0),
        ("kv_capacity_tokens", "1600", 50.0, 90.0),
        ("prefix_caching", "off", 1.0, 90.0),
    ]
    assert {tuple(fact.labels) for fact in facts} == {("instance",)}


def test_a_gauge_tells_a_fact_of_the_engine_that_was_asked(raw: Raw) -> None:
    beside = {"instance": "gateway:9877", "engine": "e:8000"}
    store = RawStore(
        [
            raw("llmdiag_exporter_build_info", [1.0] * 101, instance="gateway:9877"),
            raw("llmdiag_engine_max_num_seqs", [*[128.0] * 50, *[256.0] * 51], **beside),
            raw("llmdiag_engine_max_num_batched_tokens", [float("nan")] * 101, **beside),
            raw("llmdiag_model_max_len_tokens", [1048576.0] * 101, model="m", **beside),
        ]
    )
    facts = store.fetch(["gpu_power_watts"], _GRID).facts
    assert [(fact.name, fact.value, fact.labels) for fact in facts] == [
        ("max_model_len_tokens", "1048576", {"instance": "e:8000"}),
        ("max_num_seqs", "256", {"instance": "e:8000"}),
    ]


def test_unknown_values_are_no_facts() -> None:
    labels = {"instance": "e:1", "num_gpu_blocks": "None", "block_size": "16", "enable_prefix_caching": ""}
    names = {fact.name for fact in facts_from(engine("vllm"), [Sighting(labels, 1.0, 2.0)])}
    assert names == {"block_size_tokens", "cache_config"}


def test_a_gpu_without_a_node_label_is_where_its_exporter_is() -> None:
    labels = canonical_labels(
        {"instance": "gpu-7:9400", "UUID": "GPU-x", "gpu": "3", "__name__": "n"},
        engine("dcgm"),
        "gpu_power_watts",
    )
    assert labels == {"gpu": "GPU-x", "gpu_index": "3", "instance": "gpu-7:9400", "node": "gpu-7"}
    assert "node" not in canonical_labels({"instance": "e:1"}, engine("vllm"), "running_requests")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("a:80", "a"),
        ("a", "a"),
        ("[::1]:80", "::1"),
        ("http://a:80/x", "a"),
        ("10.0.0.1:9100", "10.0.0.1"),
        ("::1", "::1"),
        ("", ""),
    ],
)
def test_hosts_of_addresses(address: str, host: str) -> None:
    assert host_of(address) == host


def test_what_is_kept_covers_every_engine_and_both_spellings() -> None:
    names = metric_names()
    assert {"vllm:num_requests_running", "vllm_num_requests_running", "up", "node_load1"} <= names
    assert [one.name for one in ENGINES if serves(one)] == ["vllm", "sglang"]


def test_underscore_spelling_is_the_same_engine(raw: Raw) -> None:
    fetched = RawStore([raw("vllm_num_requests_running", [2.0] * 50)]).fetch(["running_requests"], _GRID)
    assert fetched.series["running_requests"][0].producer == "vllm"
