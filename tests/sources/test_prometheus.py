"""A real Prometheus and a real VictoriaMetrics, end to end, against the bundle they were filled from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from diag.errors import NoData, UsageError
from diag.model import Case, Window
from diag.signals.algebra import Matcher
from diag.sources.bundle import BundleSource
from diag.sources.gather import gather
from diag.sources.prometheus import PrometheusSource
from diag.sources.protocol import Question
from diag.sources.recording import record

pytestmark = pytest.mark.server


def _question(bundle: Path) -> Question:
    window = BundleSource(bundle).extent()
    assert window is not None
    return Question(now=window.end, window=window)


def _different(one: Case, other: Case, tolerance: float) -> list[str]:
    """Signals whose series differ, told in words."""
    found = [f"only on one side: {name}" for name in set(one.series) ^ set(other.series)]
    # The pool's size comes from facts, and a bundle has those of the log besides.
    for name in set(one.series) & set(other.series) - {"kv_capacity_tokens"}:
        left, right = one.series[name], other.series[name]
        if [s.labels for s in left] != [s.labels for s in right]:
            found.append(f"labels of {name}")
            continue
        for a, b in zip(left, right, strict=True):
            close = np.isclose(a.values, b.values, rtol=tolerance, atol=1e-9, equal_nan=True)
            if not close.all():
                where = int(np.flatnonzero(~close)[0])
                found.append(f"{name}: {a.values[where]} against {b.values[where]} at point {where}")
    return found


@pytest.mark.parametrize("name", ["healthy_a", "kv_cache_exhaustion", "telemetry_fault"])
def test_a_store_and_its_bundle_give_the_same_case(
    prometheus_url: str, stored_bundles: dict[str, Path], name: str
) -> None:
    question = _question(stored_bundles[name])
    live = gather([PrometheusSource(prometheus_url)], question)
    offline = gather([BundleSource(stored_bundles[name])], question)
    assert _different(live, offline, 1e-6) == []
    assert len(live.series) > 45
    assert (live.step_seconds, live.scrape_seconds) == (2.0, 2.0)
    metric_facts = [fact for fact in offline.facts if not fact.source.startswith("log:")]
    assert list(live.facts) == metric_facts
    assert live.page_stalls == offline.page_stalls
    assert bool(live.page_stalls) == (name == "telemetry_fault")
    assert [gap.signal for gap in live.gaps] == [gap.signal for gap in offline.gaps]


def test_what_is_recorded_from_a_store_gives_the_same_case(
    prometheus_url: str, stored_bundles: dict[str, Path], tmp_path: Path
) -> None:
    whole = _question(stored_bundles["healthy_a"])
    assert whole.window is not None
    # From the middle on, so that samples from before the window exist and matter.
    question = Question(now=whole.now, window=Window(whole.window.start + 90.0, whole.window.end))
    store = PrometheusSource(prometheus_url)
    written = record([store], question, tmp_path / "copy.tar.gz")
    with BundleSource(written) as copy:
        assert copy.extent() == question.window
        live, offline = gather([store], question), gather([copy], Question(now=whole.now))
        assert _different(live, offline, 1e-9) == []
        assert not np.isnan(offline.of("prompt_tokens_per_second")[0].values[0])


def test_victoria_metrics_answers_too(victoria_url: str, stored_bundles: dict[str, Path]) -> None:
    question = _question(stored_bundles["telemetry_fault"])
    live = gather([PrometheusSource(victoria_url)], question)
    offline = gather([BundleSource(stored_bundles["telemetry_fault"])], question)
    assert set(live.series) == set(offline.series)
    # Its rates look one sample further back and do not extrapolate: equal on the whole, not point for point.
    for name in ("running_requests", "kv_cache_usage_ratio", "prompt_tokens_per_second", "ttft_seconds_mean"):
        a, b = live.of(name)[0].values, offline.of(name)[0].values
        assert np.nanmean(a) == pytest.approx(np.nanmean(b), rel=0.1), name
    assert list(live.page_stalls) == ["vllm-0:8000"]
    stall, expected = live.page_stalls["vllm-0:8000"][0], offline.page_stalls["vllm-0:8000"][0]
    assert stall == expected


def test_raw_samples_of_victoria_metrics_are_those_that_went_in(
    victoria_url: str, prometheus_url: str, stored_bundles: dict[str, Path]
) -> None:
    question = _question(stored_bundles["healthy_a"])
    assert question.window is not None
    only = (Matcher("instance", "=", "node-0:9100"),)

    one, other = (
        list(PrometheusSource(url).raw(question.window, only)) for url in (victoria_url, prometheus_url)
    )
    assert [a.labels for a in one] == [b.labels for b in other]
    assert len(one) > 10
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a.times, b.times)
        # It keeps decimal digits, not bits.
        assert np.allclose(a.values, b.values, rtol=1e-14, atol=0)


def _engine_lines(start: int, instance: str, job: str, shift_ms: int, *, frozen: bool) -> str:
    moments = [1000 * (start + 2 * n) + shift_ms for n in range(100)]
    rows = {
        "vllm:generation_tokens_total": [500.0 if frozen else 500.0 + 10.0 * n for n in range(100)],
        "vllm:num_requests_running": [3.0] * 100,
        "up": [1.0] * 100,
    }
    return "".join(
        json.dumps(
            {
                "metric": {"__name__": name, "instance": instance, "job": job},
                "values": values,
                "timestamps": moments,
            }
        )
        + "\n"
        for name, values in rows.items()
    )


def test_second_scrapes_and_frozen_pages_are_seen_in_a_store(victoria_url: str) -> None:
    start = 1_790_000_000
    lines = (
        _engine_lines(start, "twice:1", "a", 0, frozen=False)
        + _engine_lines(start, "twice:1", "b", 700, frozen=False)
        + _engine_lines(start, "still:1", "a", 300, frozen=True)
    )
    requests.post(f"{victoria_url}/api/v1/import", lines.encode(), timeout=20).raise_for_status()
    requests.get(f"{victoria_url}/internal/force_flush", timeout=20).raise_for_status()
    question = Question(now=start + 198.0, window=Window(start, start + 198.0))
    case = gather([PrometheusSource(victoria_url)], question)
    rates = {one.labels["instance"]: one.values for one in case.of("generation_tokens_per_second")}
    assert rates["twice:1"][50] == pytest.approx(5.0)
    assert "twice:1 scraped twice for vLLM (job=a and job=b); counted once" in case.notes
    # It has no CPU counter; it is busy, and nothing moves.
    assert list(case.page_stalls) == ["still:1"]
    assert case.page_stalls["still:1"][0].seconds == pytest.approx(198.0, abs=2.0)


def test_a_refused_query_is_a_gap_and_a_warning_a_note(
    prometheus_url: str,
    stored_bundles: dict[str, Path],
    scripted: Callable[..., Any],
    answer: Callable[..., Any],
) -> None:
    def answers(path: str) -> Any:
        if "waiting" in path and "query_range" in path:
            return answer('{"status":"error","errorType":"bad_data","error":"not this one"}', 400)
        endpoint, _, form = path.partition("?")
        body = requests.get(f"{prometheus_url}{endpoint}?{form}", timeout=20).json()
        return answer(json.dumps({**body, "warnings": ["a store gateway did not answer"]}))

    server = scripted(answers)
    case = gather([PrometheusSource(server.url)], _question(stored_bundles["healthy_a"]))
    assert case.of("waiting_requests") == ()
    (gap,) = [one for one in case.gaps if one.signal == "waiting_requests"]
    assert "not this one" in gap.reason
    assert case.of("running_requests") != ()
    assert f"{server.url} warns: a store gateway did not answer" in case.notes
    assert any(note.startswith("waiting_requests could not be asked") for note in case.notes)


def test_a_store_that_will_not_say_where_its_data_begins_is_asked_as_meant(
    prometheus_url: str,
    stored_bundles: dict[str, Path],
    scripted: Callable[..., Any],
    answer: Callable[..., Any],
) -> None:
    def answers(path: str) -> Any:
        endpoint, _, form = path.partition("?")
        if "query_range" in path and "count+by+%28instance%29" in path:
            return answer('{"status":"error","errorType":"execution","error":"too many samples"}', 422)
        return answer(requests.get(f"{prometheus_url}{endpoint}?{form}", timeout=20).text)

    question = _question(stored_bundles["healthy_a"])
    assert question.window is not None
    wide = Window(question.window.start - 3600.0, question.window.end)
    source = PrometheusSource(scripted(answers).url)
    assert source.begins(wide) == wide.start
    assert gather([source], Question(now=question.now, window=wide)).window == wide


def test_match_narrows_every_query(prometheus_url: str, stored_bundles: dict[str, Path]) -> None:
    question = _question(stored_bundles["healthy_a"])
    narrowed = Question(
        now=question.now, window=question.window, matchers=(Matcher("instance", "=~", "node-.*"),)
    )
    case = gather([PrometheusSource(prometheus_url)], narrowed)
    assert case.of("running_requests") == ()
    assert {one.labels["instance"] for rows in case.series.values() for one in rows} == {"node-0:9100"}


def test_an_empty_window_names_one_that_has_data(
    prometheus_url: str, stored_bundles: dict[str, Path]
) -> None:
    question = _question(stored_bundles["healthy_a"])
    later = Window(question.now + 3 * 86400.0, question.now + 3 * 86400.0 + 600.0)
    with pytest.raises(NoData) as caught:
        gather([PrometheusSource(prometheus_url)], Question(now=later.end, window=later))
    line = str(caught.value)
    assert "\n" not in line
    assert "vLLM has data from 2026-11-29T2" in line
    assert "--from and --to" in line


def test_a_window_in_the_future_is_the_question_s_fault(prometheus_url: str) -> None:
    question = Question(now=1795990000.0, window=Window(1795993600.0, 1795997200.0))
    with pytest.raises(UsageError, match="starts in the future"):
        gather([PrometheusSource(prometheus_url)], question)


def test_long_ranges_are_asked_in_pieces(prometheus_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from diag.signals.frame import Grid
    from diag.sources import promapi
    from diag.sources.access import Client

    grid = Grid(1795990732.0, 1795990932.0, 2.0, 10.0)
    query = "max_over_time(vllm:num_requests_running[10s])"
    whole = promapi.Api(Client(prometheus_url)).ranged(query, grid)
    monkeypatch.setattr(promapi, "_STEPS_PER_CALL", 7)
    pieces = promapi.Api(Client(prometheus_url)).ranged(query, grid)
    assert len(whole) == len(pieces) == 1
    assert np.array_equal(whole[0].values, pieces[0].values, equal_nan=True)
    monkeypatch.setattr(promapi, "_SAMPLES_PER_CALL", 10)
    window = Window(1795990732.0, 1795990932.0)
    many = list(promapi.Api(Client(prometheus_url)).samples("vllm:num_requests_running", window, 1, 0.1))
    monkeypatch.setattr(promapi, "_SAMPLES_PER_CALL", 10**6)
    once = list(promapi.Api(Client(prometheus_url)).samples("vllm:num_requests_running", window, 1, 0.1))
    assert np.array_equal(many[0].times, once[0].times)
    assert many[0].times.size == 100


def test_eleven_thousand_steps_are_no_problem(prometheus_url: str) -> None:
    from diag.signals.frame import Grid
    from diag.sources.access import Client
    from diag.sources.promapi import Api

    grid = Grid(1795990732.0 - 11_500.0, 1795990932.0, 1.0, 10.0)
    rows = Api(Client(prometheus_url)).ranged("max_over_time(vllm:num_requests_running[10s])", grid)
    assert rows[0].values.size == grid.times.size == 11_701
    assert np.isnan(rows[0].values[:100]).all()
    assert not np.isnan(rows[0].values[-10:]).any()


@pytest.mark.parametrize("url", ["prometheus_url", "victoria_url"])
def test_a_store_says_where_its_data_begins(
    request: pytest.FixtureRequest, stored_bundles: dict[str, Path], url: str
) -> None:
    extents = [one for path in stored_bundles.values() if (one := BundleSource(path).extent())]
    first = min(extents)
    source = PrometheusSource(request.getfixturevalue(url))
    wide = Window(first.start - 3600.0, first.end)
    begins = source.begins(wide)
    assert begins is not None
    assert first.start - 3.0 <= begins <= first.start + 5.0
    assert source.begins(Window(first.start - 3600.0, first.start - 1800.0)) is None
    case = gather([source], Question(now=first.end, window=wide))
    assert case.window == Window(begins, wide.end)
    assert case.step_seconds == 2.0
