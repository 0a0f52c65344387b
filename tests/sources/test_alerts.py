"""Alerts that a store recorded become facts: whose, from when to when."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from diag.model import Fact, Window
from diag.signals.algebra import Matcher
from diag.signals.frame import Grid, RawSeries
from diag.sources.alerts import alert_facts, alert_selectors
from diag.sources.evaluation import RawStore

_WINDOW = Window(1000.0, 2000.0)


def _alert(name: str, *spans: tuple[float, float], every: float = 15.0, **labels: str) -> RawSeries:
    times = np.concatenate([np.arange(start, end + 0.5, every) for start, end in spans])
    held = {"__name__": "ALERTS", "alertname": name, "alertstate": "firing", **labels}
    return RawSeries(held, times, np.ones(len(times)))


@pytest.fixture
def facts() -> Callable[[Sequence[RawSeries]], list[Fact]]:
    """The alerts that a bundle with these series, and one engine at e:8000, tells of."""
    running = RawSeries(
        {"__name__": "vllm:num_requests_running", "instance": "e:8000"},
        np.arange(1000.0, 2000.0, 5.0),
        np.ones(200),
    )

    def read(raw: Sequence[RawSeries], *matchers: Matcher) -> list[Fact]:
        fetched = RawStore([running, *raw]).fetch(
            ["running_requests"], Grid(1010.0, 2000.0, 5.0, 10.0), matchers
        )
        return [one for one in fetched.facts if one.name == "alert"]

    return read


def test_each_time_an_alert_fires_is_one_fact() -> None:
    one = _alert("LLMQueueGrowing", (1300.0, 1450.0), (1700.0, 1850.0), service="llm", instance="e:8000")

    found = alert_facts([one], _WINDOW)

    assert [(f.value, f.since, f.until) for f in found] == [
        ("LLMQueueGrowing", 1300.0, 1450.0),
        ("LLMQueueGrowing", 1700.0, 1850.0),
    ]
    assert dict(found[0].labels) == {"instance": "e:8000"}


def test_what_fires_at_an_end_of_the_window_began_or_ends_nobody_knows_when() -> None:
    early = _alert("A", (1000.0, 1450.0), service="llm")
    late = _alert("B", (1700.0, 2000.0), service="llm")

    found = {f.value: (f.since, f.until) for f in alert_facts([early, late], _WINDOW)}

    assert found == {"A": (None, 1450.0), "B": (1700.0, None)}


def test_only_alerts_of_the_service_or_about_an_engine_count(facts: Callable[..., list[Fact]]) -> None:
    raw = [
        _alert("Labelled", (1300.0, 1500.0), service="llm"),
        _alert("AboutTheEngine", (1300.0, 1500.0), instance="e:8000", team="search"),
        _alert("OfOthers", (1300.0, 1500.0), instance="db:5432", service="db"),
        _alert("Pending", (1300.0, 1500.0), service="llm", alertstate="pending"),
    ]

    assert {one.value for one in facts(raw)} == {"Labelled", "AboutTheEngine"}


def test_alerts_obey_the_matchers(facts: Callable[..., list[Fact]]) -> None:
    raw = [
        _alert("East", (1300.0, 1500.0), service="llm", cluster="east"),
        _alert("West", (1300.0, 1500.0), service="llm", cluster="west"),
    ]

    assert {one.value for one in facts(raw, Matcher("cluster", "!=", "west"))} == {"East"}


def test_a_store_is_asked_for_the_same() -> None:
    assert alert_selectors([], [Matcher("cluster", "=", "east")]) == (
        'ALERTS{alertstate="firing",service="llm",cluster="east"}',
    )
    (_, about) = alert_selectors(["b:1", "", "a.x:1"])
    assert about == 'ALERTS{alertstate="firing",instance=~"a\\\\.x:1|b:1"}'
