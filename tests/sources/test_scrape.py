"""Bare pages: a server that replays a recording, polled with an injected clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diag.errors import NotPrometheus, SourceRefused
from diag.model import Window
from diag.sources.access import Access
from diag.sources.gather import gather
from diag.sources.protocol import Question
from diag.sources.scrape import ScrapeSource, interval_seconds

_START = 1_795_990_732.0


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = _START

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _tokens(text: str) -> float:
    return float(next(line for line in text.splitlines() if "vllm:prompt_tokens_total" in line).split()[-1])


def _replay(
    page: Callable[[Path, int], str], bundle: Path, answer: Callable[..., Any], clock: Clock, every: float
) -> Any:
    pages = {number: page(bundle, number) for number in (*range(62), 99)}

    def answers(_path: str) -> Any:
        return answer(pages[round((clock.now - _START) / every)], 200, {"Content-Type": "text/plain"})

    return answers


def test_a_replayed_recording_gives_its_signals(
    scripted: Callable[..., Any], answer: Callable[..., Any], page: Callable[[Path, int], str],
    incidents: Path, clock: Clock,
) -> None:  # fmt: skip
    server = scripted(_replay(page, incidents / "healthy_a", answer, clock, 2.0))
    source = ScrapeSource(f"{server.url}/metrics", clock=clock.time, sleep=clock.sleep)
    seen: list[tuple[float, float, int, int]] = []
    source.collect(120.0, lambda *told: seen.append(told))
    assert seen[-1][:3] == (120.0, 120.0, 1)
    assert seen[-1][3] > 100
    assert source.extent() == Window(_START, _START + 120.0)
    case = gather([source], Question(now=clock.now))
    assert (case.step_seconds, case.scrape_seconds) == (2.0, 2.0)
    (rate,) = case.of("prompt_tokens_per_second")
    assert rate.labels["instance"] == server.url.removeprefix("http://")
    first, last = (_tokens(page(incidents / "healthy_a", number)) for number in (0, 60))
    assert np.nanmean(rate.values) == pytest.approx((last - first) / 120.0, rel=0.1)
    assert not np.isnan(rate.values[5:]).any()
    assert set(case.of("target_up")[0].values.tolist()) == {1.0}
    assert [fact.value for fact in case.facts_named("kv_blocks")] == ["8800"]
    assert any("120 s (61 samples)" in note and "--for 10m" in note for note in case.notes)
    assert case.page_stalls == {}


def test_two_samples_are_enough_for_rates(
    scripted: Callable[..., Any], answer: Callable[..., Any], page: Callable[[Path, int], str],
    incidents: Path, clock: Clock,
) -> None:  # fmt: skip
    server = scripted(_replay(page, incidents / "healthy_a", answer, clock, 1.0))
    source = ScrapeSource(f"{server.url}/metrics", clock=clock.time, sleep=clock.sleep)
    source.collect(1.0)
    case = gather([source], Question(now=clock.now))
    rate = case.of("prompt_tokens_per_second")[0].values
    assert np.isfinite(rate).sum() == 1
    assert any("1 s (2 samples)" in note for note in case.notes)


def test_several_pages_are_polled_together_and_a_dead_one_is_down(
    scripted: Callable[..., Any], answer: Callable[..., Any], clock: Clock
) -> None:
    engine = scripted(lambda _path: answer("vllm:num_requests_running 3\n"))
    node = scripted(lambda _path: answer("node_load1 1\n") if clock.now < _START + 5 else answer("", 500, {}))
    source = ScrapeSource(
        [f"{engine.url}/metrics", f"{node.url}/metrics"], clock=clock.time, sleep=lambda s: clock.sleep(s)
    )
    source.collect(10.0)
    case = gather([source], Question(now=clock.now))
    assert case.of("running_requests")[0].values[-1] == 3.0
    up = {one.labels["instance"]: one.values for one in case.of("target_up")}
    assert up[engine.url.removeprefix("http://")][-1] == 1.0
    assert up[node.url.removeprefix("http://")][-1] < 0.6
    assert case.joins[0].how in ("host", "only one")
    assert any("scrapes failed" in note for note in case.notes)


@pytest.mark.parametrize(("seconds", "every"), [(1, 1.0), (30, 1.0), (120, 2.0), (600, 5.0), (3600, 5.0)])
def test_the_interval_follows_the_length(seconds: float, every: float) -> None:
    assert interval_seconds(seconds) == every


@pytest.mark.parametrize(
    ("body", "status", "kind", "said"),
    [
        ("<html>", 200, NotPrometheus, "HTML page"),
        ("hello there", 200, NotPrometheus, "no metrics page"),
        (json.dumps({"status": "success"}), 200, NotPrometheus, "no metrics page"),
        ("", 404, NotPrometheus, "404"),
        ("", 401, SourceRefused, "401"),
    ],
)
def test_what_is_no_page_is_told_at_once(
    scripted: Callable[..., Any],
    answer: Callable[..., Any],
    body: str,
    status: int,
    kind: type[Exception],
    said: str,
) -> None:
    server = scripted(
        lambda _path: answer(body, status, {"Content-Type": "text/html" if "<" in body else ""})
    )
    with pytest.raises(kind, match=said):
        ScrapeSource(f"{server.url}/metrics")


def test_credentials_and_the_plain_dialect_are_asked_for(
    scripted: Callable[..., Any], answer: Callable[..., Any]
) -> None:
    server = scripted(lambda _path: answer("up 1\n"))
    host = server.url.removeprefix("http://")
    source = ScrapeSource(f"http://me:secret@{host}/metrics?name=x", Access(headers={"X-Team": "a"}))
    _, path, headers = server.asked[0]
    assert path == "/metrics?name=x"
    assert headers["Accept"] == "text/plain;version=0.0.4"
    assert headers["X-Team"] == "a"
    assert headers["Authorization"].startswith("Basic ")
    assert source.ref.ref == f"http://{host}/metrics"


def test_bad_lines_of_a_page_are_noted(
    scripted: Callable[..., Any], answer: Callable[..., Any], clock: Clock
) -> None:
    server = scripted(lambda _path: answer("vllm:num_requests_running 3\nbroken {\n"))
    source = ScrapeSource(f"{server.url}/metrics", clock=clock.time, sleep=clock.sleep)
    source.collect(4.0)
    notes = gather([source], Question(now=clock.now)).notes
    assert any("5 unreadable metrics lines" in note and "/metrics:2" in note for note in notes)
