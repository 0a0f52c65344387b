"""A log's line and a span of one request become one event, whichever comes first."""

from __future__ import annotations

import pytest

from diag_exporter.sessions.events import Event
from diag_exporter.sessions.feeds.joining import Joiner

LOG = Event(5.0, "", "red", 7, "x-session-id", duration_seconds=3.0, status="ok", request=11)
SPAN = Event(
    5.1, "qwen", prompt_tokens=100, output_tokens=9, ttft_seconds=0.5, queue_seconds=0.2,
    duration_seconds=2.0, instance="node", request=11,
)  # fmt: skip
BOTH = LOG._replace(
    model="qwen", prompt_tokens=100, output_tokens=9, ttft_seconds=0.5, queue_seconds=0.2, instance="node"
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def joiner(basket, clock) -> Joiner:
    return Joiner(basket, wait_seconds=30, capacity=10, clock=clock)


def test_either_order(joiner: Joiner, basket) -> None:
    joiner.add_all([LOG])
    joiner.add_spans([(SPAN, 0)])
    joiner.add_spans([(SPAN, 0)])
    joiner.add_all([LOG])
    assert basket.events == [BOTH, BOTH]
    assert joiner.joined == 2


def test_the_engines_own_ending_does_not_matter(joiner: Joiner, basket) -> None:
    span = SPAN._replace(request=99)
    joiner.add_spans([(span, 11)])
    joiner.add_all([LOG])
    joiner.add_all([LOG])
    joiner.add_spans([(span, 11)])
    assert basket.events == [BOTH, BOTH]


def test_who_finds_nobody_goes_on_alone(joiner: Joiner, basket, clock) -> None:
    joiner.add_all([LOG, LOG._replace(request=0)])
    assert [event.request for event in basket.events] == [0]
    clock.now = 29
    joiner.add_spans([(SPAN._replace(request=3), 0)])
    joiner.settle()
    assert len(basket.events) == 1
    clock.now = 31
    joiner.settle()
    assert basket.events[1:] == [LOG]
    joiner.flush()
    assert basket.events[2:] == [SPAN._replace(request=3)]


def test_an_id_used_twice(joiner: Joiner, basket) -> None:
    joiner.add_all([LOG._replace(ts=1.0), LOG._replace(ts=2.0)])
    joiner.add_spans([(SPAN, 0)])
    assert [event.ts for event in basket.events] == [1.0, 2.0]
    assert basket.events[1].prompt_tokens == 100


def test_waiting_is_bounded(joiner: Joiner, basket) -> None:
    for number in range(1, 5001):
        joiner.add_spans([(SPAN._replace(request=number), number + 10_000)])
    assert len(basket.events) >= 4989
    assert len(joiner._spans) <= 11
    assert len(joiner._aliases) < 2000
