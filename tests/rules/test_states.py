"""The state machine of the replay, against the cases that Prometheus documents."""

from __future__ import annotations

import pytest

from tests.rules.states import episodes

_MOMENTS = [float(60 * i) for i in range(20)]


def _fired(there: list[int], *, hold: float = 0.0, keep: float = 0.0) -> list[tuple[float, float | None]]:
    answer = [({"instance": "a"}, frozenset(60.0 * i for i in there))]
    found = episodes(answer, _MOMENTS, for_seconds=hold, keep_firing_seconds=keep)
    return [(one.fired / 60, None if one.resolved is None else one.resolved / 60) for one in found]


@pytest.mark.parametrize(
    ("there", "hold", "keep", "wanted"),
    [
        ([3, 4, 5], 0, 0, [(3, 6)]),
        ([3, 4, 5], 120, 0, [(5, 6)]),
        ([3, 4], 120, 0, []),
        ([3, 4, 6, 7], 120, 0, []),
        ([3, 4, 5, 6, 7, 8], 300, 0, [(8, 9)]),
        ([3], 0, 240, [(3, 8)]),
        ([3, 6], 0, 240, [(3, 11)]),
        ([3, 9], 0, 120, [(3, 6), (9, 12)]),
        (list(range(15, 20)), 120, 0, [(17, None)]),
        ([], 0, 0, []),
    ],
)
def test_episodes(
    there: list[int], hold: float, keep: float, wanted: list[tuple[float, float | None]]
) -> None:
    assert _fired(there, hold=hold, keep=keep) == wanted


def test_instances_are_apart_and_lose_the_metrics_name() -> None:
    answer = [
        ({"__name__": "x", "instance": "b"}, frozenset({60.0})),
        ({"__name__": "x", "instance": "a"}, frozenset({0.0})),
    ]
    found = episodes(answer, _MOMENTS, for_seconds=0.0, keep_firing_seconds=0.0)
    assert [one.labels for one in found] == [(("instance", "a"),), (("instance", "b"),)]
