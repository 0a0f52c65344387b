"""Who took part in what moved: cards, engines, tenants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from diag.detectors.findings import Spans
from diag.detectors.view import View, view_of
from diag.detectors.whom import (
    engines_changed,
    engines_on,
    instances_moved,
    places_marked,
    tenants_busier,
    tenants_moved,
    tenants_of,
)
from diag.detectors.workload import Workload
from diag.model import Case, Event, Join, Series, Window
from diag.records.cohorts import from_frame

START, STEP, N, AT = 1_000_000.0, 5.0, 120, 60
Make = Callable[..., Case]
MakeSeries = Callable[..., Series]


def time(point: int) -> float:
    return START + STEP * point


def level(before: float, during: float) -> np.ndarray:
    wave = 1 + 0.01 * np.sin(np.arange(N))
    return np.where(np.arange(N) < AT, before, during) * wave


def look(case: Case, frame: pd.DataFrame | None = None) -> View:
    spans = Spans(Window(time(0), time(AT - 1)), Window(time(AT), time(N - 1)), STEP, STEP)
    return view_of(case, spans, (), from_frame(frame, time(N)) if frame is not None else None)


def clocks(series: MakeSeries, *during: float) -> list[Series]:
    return [
        series("gpu_sm_clock_hertz", level(1.98e9, value), "gpus:9", node=f"node-{i // 2}", gpu=f"GPU-{i}")
        for i, value in enumerate(during)
    ]


def test_every_marked_card_is_named_and_no_other(series: MakeSeries, case: Make) -> None:
    view = look(case(*clocks(series, 0.9e9, 1.98e9, 1.0e9, 1.7e9)))
    marked = places_marked(view, ("gpu_sm_clock_hertz",), -1)
    assert [one["gpu"] for one in marked] == ["GPU-0", "GPU-2"]


def test_engines_are_those_of_the_marked_cards(series: MakeSeries, case: Make) -> None:
    joins = tuple(Join(f"e{i}:1", f"node-{i // 2}", (f"GPU-{i}",), "label") for i in range(4))
    view = look(case(*clocks(series, 0.9e9, 1.98e9, 1.0e9, 1.98e9), joins=joins))
    assert engines_on(view, places_marked(view, ("gpu_sm_clock_hertz",), -1)) == ("e0:1", "e2:1")
    assert engines_on(view, [{"node": "node-1"}]) == ("e2:1", "e3:1")


def test_engines_that_share_all_cards_are_told_apart_by_their_steps(series: MakeSeries, case: Make) -> None:
    joins = tuple(Join(f"e{i}:1", "node-0", ("GPU-0", "GPU-1"), "label") for i in range(2))
    steps = [
        series("inter_token_seconds_mean", level(0.02, v), f"e{i}:1") for i, v in enumerate((0.05, 0.02))
    ]
    card = {"node": "node-0", "gpu": "GPU-0"}
    assert engines_on(look(case(*steps, joins=joins)), [card]) == ("e0:1",)
    level_steps = [series("inter_token_seconds_mean", level(0.02, 0.02), f"e{i}:1") for i in range(2)]
    assert engines_on(look(case(*level_steps, joins=joins)), [card]) == ("e0:1", "e1:1")


def test_instances_that_moved_leave_out_one_that_did_not(series: MakeSeries, case: Make) -> None:
    found = [
        series("spec_decode_acceptance_ratio", level(0.7, v), f"e{i}") for i, v in enumerate((0.2, 0.68, 0.3))
    ]
    view = look(case(*found))
    assert instances_moved(view, ("spec_decode_acceptance_ratio",), -1) == ("e0", "e2")
    assert instances_moved(view, ("spec_decode_acceptance_ratio",), 1) == ()


def test_a_rollout_names_engines_and_not_its_target(series: MakeSeries, case: Make) -> None:
    began = [series("engine_start_time_seconds", level(1.0, 1.0), f"e{i}:1") for i in range(3)]
    moved = [
        Series(one.signal, one.labels, one.times, np.where(one.times < time(at), 0.0, time(at)))
        for one, at in zip(began, (61, 80, 1000), strict=True)
    ]
    running = [series("running_requests", level(3, 3), f"e{i}:1") for i in range(3)]
    marked = Event(time(60), "deploy", "llm-engines", "rollout", True)
    view = look(case(*moved, *running, events=(marked,)))
    assert engines_changed(view, time(60)) == ("e0:1", "e1:1")


def records(during: dict[str, float], *, before: float = 100.0) -> pd.DataFrame:
    """Per tenant a request a second with about so many output tokens."""
    rng = np.random.default_rng(1)
    rows = []
    for tenant, value in during.items():
        for second in np.arange(START, time(N), 5.0):
            usual = before if second < time(AT) else value
            tokens = usual * rng.lognormal(0, 0.2)
            rows.append((second, tenant, "ok", 0.1, 1.0, 500.0, tokens))
    names = ["ts", "tenant", "status", "ttft_seconds", "duration_seconds", "prompt_tokens", "output_tokens"]
    return pd.DataFrame(rows, columns=names)


def workload(view: View) -> Workload:
    assert view.workload is not None
    return view.workload


@pytest.mark.parametrize(
    ("during", "wanted"),
    [
        ({"a": 300.0, "b": 100.0, "c": 280.0}, ("a", "c")),
        ({"a": 300.0, "b": 300.0}, ("a", "b")),
        ({"a": 100.0, "b": 100.0}, ()),
    ],
)
def test_tenants_whose_answers_grew(case: Make, during: dict[str, float], wanted: tuple[str, ...]) -> None:
    work = workload(look(case(), records(during)))
    assert tenants_moved(work, "request_output_tokens", work.requests.output, 1) == wanted


def test_a_tenant_with_hardly_any_request_is_not_named(case: Make) -> None:
    frame = records({"a": 300.0, "b": 100.0})
    few = frame[frame.tenant == "a"].tail(3).assign(tenant="z", output_tokens=9000.0)
    work = workload(look(case(), pd.concat([frame, few])))
    assert tenants_moved(work, "request_output_tokens", work.requests.output, 1) == ("a",)


def test_tenants_that_send_more_and_that_hold_most(case: Make) -> None:
    frame = records({"a": 100.0, "b": 100.0, "c": 900.0})
    more = frame[(frame.tenant == "b") & (frame.ts >= time(AT))]
    work = workload(
        look(case(), pd.concat([frame, more.assign(ts=more.ts + 1), more.assign(ts=more.ts + 2)]))
    )
    assert tenants_busier(work) == ("b",)
    assert tenants_of(work, work.requests.output) == ("c",)
