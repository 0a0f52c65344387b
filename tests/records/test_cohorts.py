"""Turns, histories, waits of open requests, growth against giants, and who waited behind whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.detectors.exposure import excess_seconds, exposure_of, share_of_excess
from diag.detectors.workload import growth_of, workload_of
from diag.model import Window
from diag.records.cohorts import Requests, bins, from_frame
from diag.records.record import build_frame


def read(rows: Sequence[Mapping[str, Any]], end: float = 1e4) -> Requests:
    columns = {name: [row.get(name) for row in rows] for name in {key for row in rows for key in row}}
    frame, _ = build_frame(columns, len(rows))
    return from_frame(frame, end)


def test_turns_follow_their_session() -> None:
    r = read([
        {"ts": 1, "session": "a"}, {"ts": 2, "session": "b"}, {"ts": 3, "session": "a"}, {"ts": 4},
        {"ts": 5, "session": "a"}, {"ts": 6}, {"ts": 7, "session": "b"},
    ])  # fmt: skip
    assert r.turn.tolist() == [0, 0, 1, 0, 2, 0, 1]
    assert r.previous.tolist() == [-1, -1, 0, -1, 2, -1, 1]
    assert r.sessions == ("a", "b")
    assert r.session.tolist() == [0, 1, 0, -1, 0, -1, 1]


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=30))
def test_turns_count_what_a_loop_would(sessions: list[str | None]) -> None:
    r = read([{"ts": i, "session": s} for i, s in enumerate(sessions)])
    last: dict[str, int] = {}
    count: dict[str, int] = {}
    for i, session in enumerate(sessions):
        if session is None:
            assert (r.previous[i], r.turn[i]) == (-1, 0)
            continue
        assert r.previous[i] == last.get(session, -1)
        assert r.turn[i] == count.get(session, 0)
        last[session], count[session] = i, count.get(session, 0) + 1


def test_history_is_what_the_turn_before_left_behind() -> None:
    r = read([
        {"ts": 1, "session": "a", "prompt_tokens": 100, "output_tokens": 20},
        {"ts": 2, "session": "a", "prompt_tokens": 150},
        {"ts": 3, "session": "a", "prompt_tokens": 40},
        {"ts": 4, "session": "a"},
    ])  # fmt: skip
    assert np.isnan(r.history[0])
    assert r.history[1:3].tolist() == [120.0, 40.0]
    assert np.isnan(r.history[3])


def test_an_open_request_has_waited_until_the_records_end_and_one_that_left_is_unknown() -> None:
    r = read([
        {"ts": 10, "ttft_seconds": 1.5, "duration_seconds": 4.0, "status": "ok"},
        {"ts": 20},
        {"ts": 30, "status": "aborted"},
        {"ts": 40, "status": "error"},
        {"ts": 45, "duration_seconds": 3.0},
        {"ts": 200},
    ], end=100.0)  # fmt: skip
    assert r.waited[:2].tolist() == [1.5, 80.0]
    assert np.isnan(r.waited[2:5]).all()
    assert r.waited[5] == 0.0
    assert r.aborted.tolist() == [False, False, True, False, False, False]
    assert r.failed.tolist() == [False, False, False, True, False, False]


def test_what_the_records_lack_is_unknown_and_order_of_arrival_is_restored() -> None:
    import pandas as pd

    r = from_frame(pd.DataFrame({"ts": [3.0, 1.0, 2.0], "prompt_tokens": [30, 10, "x"]}), 10.0)
    assert r.ts.tolist() == [1.0, 2.0, 3.0]
    assert r.prompt[[0, 2]].tolist() == [10.0, 30.0]
    assert np.isnan(r.prompt[1])
    assert np.isnan(r.cached).all()
    assert r.tenants == r.instances == r.sessions == ()


def test_bins_cover_the_window_and_are_no_finer_than_the_grid() -> None:
    r = read([{"ts": float(t)} for t in range(1000)])
    edges = bins(r, Window(0, 999), 5.0)
    assert edges[0] == 0
    assert edges[-1] >= 999
    assert np.diff(edges) == pytest.approx(np.full(len(edges) - 1, 8.0), rel=0.02)
    assert np.diff(bins(r, Window(0, 999), 60.0)).min() == pytest.approx(60.0)


def session(name: str, start: float, first: int, step: int, turns: int) -> list[dict[str, Any]]:
    """A dialogue that resends all: each prompt holds the one before and its answer."""
    return [
        {"ts": start + 20 * i, "session": name, "prompt_tokens": first + step * i, "output_tokens": step // 2,
         "ttft_seconds": 0.1, "duration_seconds": 1.0, "status": "ok"}
        for i in range(turns)
    ]  # fmt: skip


def usual(n: int, until: float) -> list[dict[str, Any]]:
    return [
        {"ts": until * i / n, "session": f"u{i}", "prompt_tokens": 400, "output_tokens": 50,
         "ttft_seconds": 0.1, "duration_seconds": 1.0, "status": "ok"}
        for i in range(n)
    ]  # fmt: skip


def test_grown_prompts_are_resent_history_and_giants_come_out_of_nowhere() -> None:
    rows = [*usual(40, 400), *session("old", 400, 500, 900, 20)]
    rows += [{"ts": 700 + i, "session": f"g{i}", "prompt_tokens": 9000} for i in range(5)]
    rows += [{"ts": 750 + i, "session": f"m{i}", "prompt_tokens": 1200} for i in range(5)]
    r = read(rows)
    base, inc = r.within(Window(0, 399)), r.within(Window(400, 1000))
    growth = growth_of(r, base, inc)
    assert growth is not None
    assert growth.usual_tokens == pytest.approx(500)
    assert growth.sessions == ("old",)
    assert growth.longest_tokens == 500 + 900 * 19
    assert growth.first_tokens == 500
    names = np.array([r.sessions[code] for code in r.session])
    assert set(names[growth.giant]) == {f"g{i}" for i in range(5)}
    assert set(names[growth.grown]) == {"old"}
    # The second turn (1,400 of which 950 are history) counts, the first does not.
    assert growth.grown.sum() == 19


def test_a_giant_that_grows_on_is_history_from_its_second_turn() -> None:
    rows = [*usual(40, 400), *session("g", 500, 20_000, 100, 4)]
    r = read(rows)
    growth = growth_of(r, r.within(Window(0, 399)), r.within(Window(400, 1000)))
    assert growth is not None
    own = np.array([r.sessions[code] == "g" for code in r.session])
    assert growth.giant[own].tolist() == [True, False, False, False]
    assert growth.grown[own].tolist() == [False, True, True, True]


def test_without_sessions_every_long_prompt_is_a_giant() -> None:
    rows = [
        {k: v for k, v in row.items() if k != "session"}
        for row in [*usual(40, 400), *session("g", 500, 20_000, 100, 4)]
    ]
    r = read(rows)
    growth = growth_of(r, r.within(Window(0, 399)), r.within(Window(400, 1000)))
    assert growth is not None
    assert growth.giant.sum() == 4
    assert growth.sessions == ()


def test_too_few_quiet_prompts_tell_nothing() -> None:
    r = read([*usual(8, 400), *session("g", 500, 20_000, 100, 4)])
    assert growth_of(r, r.within(Window(0, 399)), r.within(Window(400, 1000))) is None
    assert workload_of(r, Window(0, 399), Window(400, 1000)) is None


def blocked() -> tuple[Requests, np.ndarray, np.ndarray, np.ndarray]:
    """A giant of ten seconds every minute; short requests every three seconds wait for its rest."""
    rows = [*usual(40, 400)]
    for start in range(500, 1000, 60):
        rows.append(
            {"ts": float(start), "prompt_tokens": 20_000, "ttft_seconds": 10.0, "session": f"g{start}"}
        )
    for i in range(170):
        ts = 490.5 + 3 * i
        into = (ts - 500) % 60 if ts >= 500 else 60.0
        rows.append({"ts": ts, "prompt_tokens": 400, "ttft_seconds": 0.1 + max(0.0, 10 - into)})
    r = read(rows)
    base, inc = r.within(Window(0, 400)), r.within(Window(480, 1010))
    return r, r.prompt > 10_000, base, inc


def test_those_behind_a_giant_wait_and_the_others_do_not() -> None:
    r, long, base, inc = blocked()
    seen = exposure_of(r, long, base, inc)
    assert seen is not None
    assert seen.free_seconds == pytest.approx(0.1)
    assert 3 < seen.behind_seconds < 8
    assert seen.behind + seen.free == int((inc & ~long).sum())
    assert seen.excess_share == pytest.approx(1.0)
    assert 0.1 < seen.own_share < seen.excess_share


def test_a_wait_that_everyone_has_is_not_the_giants() -> None:
    r, long, base, inc = blocked()
    r.waited[inc & ~long] = 5.0
    seen = exposure_of(r, long, base, inc)
    assert seen is not None
    assert seen.behind_seconds == seen.free_seconds == 5.0
    assert seen.excess_share < 0.5
    share = share_of_excess(r, long, base, inc)
    assert share == pytest.approx(seen.excess_share)


def test_without_giants_or_without_an_excess_there_is_no_exposure() -> None:
    r, long, base, inc = blocked()
    none = np.zeros_like(long)
    assert exposure_of(r, none, base, inc) is None
    assert share_of_excess(r, none, base, inc) is None
    r.waited[:] = 0.1
    assert exposure_of(r, long, base, inc) is None
    assert excess_seconds(r, base, inc).sum() == 0


def test_excess_is_never_negative_and_unknown_waits_add_none() -> None:
    r, _, base, inc = blocked()
    r.waited[inc] = 0.01
    r.waited[np.flatnonzero(inc)[0]] = np.nan
    assert (excess_seconds(r, base, inc) == 0).all()


def test_records_become_findings_of_the_request_scope() -> None:
    rows = [*usual(60, 400)]
    for i in range(120):
        rows.append({
            "ts": 400 + 5 * i, "session": f"s{i % 6}", "tenant": "big" if i % 3 else "small",
            "instance": f"e{i % 2}", "prompt_tokens": 800, "cached_tokens": 100, "output_tokens": 50,
            "ttft_seconds": 0.8, "duration_seconds": 2.0, "status": "aborted" if i % 2 else "ok",
        })  # fmt: skip
    for row in rows[:60]:
        row |= {"tenant": "big" if row["ts"] % 2 else "small", "instance": "e0", "cached_tokens": 300}
    work = workload_of(read(rows), Window(0, 399), Window(400, 1000))
    assert work is not None
    found = work.findings
    assert found["request_prompt_tokens"].before == pytest.approx(400)
    assert found["request_prompt_tokens"].effect > 1
    assert found["request_computed_tokens"].during == pytest.approx(700)
    assert found["request_cached_tokens"].effect < -1
    assert found["aborted_ratio"].during == pytest.approx(0.5)
    assert found["aborted_ratio"].effect > 1
    assert found["top_tenant_ratio"].labels["tenant"] == "big"
    assert found["request_output_tokens"].effect == pytest.approx(0, abs=0.01)
    # The records carry none of these: unknown, not zero.
    for absent in ("client_gap_seconds", "gateway_connect_seconds"):
        assert absent not in found


def test_a_switch_of_replica_is_counted_from_the_second_turn_on() -> None:
    rows = [
        {"ts": 5.0 * i, "session": f"s{i % 4}", "instance": f"e{(i % 4) % 2 if i < 80 else (i // 4) % 2}"}
        for i in range(160)
    ]
    work = workload_of(read(rows), Window(0, 399), Window(400, 1000))
    assert work is not None
    switched = work.findings["replica_switch_ratio"]
    assert switched.before == 0
    assert switched.during == pytest.approx(1.0, abs=0.03)
