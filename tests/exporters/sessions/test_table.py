"""What the table makes of events."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading

import pytest

from diag_exporter.families import Histogram
from diag_exporter.sessions.buckets import LENGTH_BINS
from diag_exporter.sessions.events import Event
from diag_exporter.sessions.shares import HeavyHitters, WindowedShares


def count(histogram: object) -> int:
    assert isinstance(histogram, Histogram)
    return sum(histogram.counts)


def test_an_idle_table_says_nothing_but_its_size(bench) -> None:
    assert set(bench.page()) == {"llmdiag_sessions_held", "llmdiag_sessions_evicted_total"}


def test_growth_repeats_and_cuts(bench) -> None:
    for prompt in (1000, 3000, 500, 700):
        bench.add(session=1, session_source="x-session-id", prompt_tokens=prompt, cached_tokens=100)
    page = bench.page()
    growth = page["llmdiag_session_growth_tokens"][("m",)]
    assert (count(growth), growth.total) == (2, 2200)
    assert page["llmdiag_session_shrinks_total"][("m",)] == 1
    # 1000 of 3000 came before, nothing of the 500 surely did, 500 of 700 did.
    assert page["llmdiag_prompt_repeated_tokens_total"][("m",)] == 1500
    assert page["llmdiag_prompt_repeat_ratio"][("m",)] == pytest.approx(1500 / 5200)
    assert page["llmdiag_prompt_cached_ratio"][("m",)] == pytest.approx(400 / 5200)
    assert page["llmdiag_prompt_reuse_headroom_ratio"][("m",)] == pytest.approx(1100 / 5200)


def test_a_feed_that_knows_what_repeats_is_believed(bench) -> None:
    bench.add(prompt_tokens=100, repeated_tokens=60)
    bench.add(session=1, prompt_tokens=100, repeated_tokens=1000)
    assert bench.value("llmdiag_prompt_repeated_tokens_total", "m") == 160
    assert bench.value("llmdiag_prompt_cached_ratio", "m") is None
    assert bench.value("llmdiag_prompt_reuse_headroom_ratio", "m") is None


def test_a_user_is_not_a_session(bench) -> None:
    for prompt in (1000, 3000):
        bench.add(session=1, session_source="user", prompt_tokens=prompt)
    page = bench.page()
    assert page["llmdiag_active_sessions"][("m",)] == 1
    assert "llmdiag_session_growth_tokens" not in page
    assert "llmdiag_prompt_repeat_ratio" not in page
    assert page["llmdiag_session_source_total"][("user",)] == 2


def test_context_is_prompt_and_answer_against_the_limit(bench) -> None:
    bench.add(session=1, prompt_tokens=900, output_tokens=60)
    bench.add(session=2, prompt_tokens=100)
    assert bench.value("llmdiag_active_session_context_ratio", "m") is None
    bench.max_length = {"m": 1000}.get
    page = bench.page()
    assert page["llmdiag_active_session_context_tokens"][("m",)].total == 1060
    ratio = page["llmdiag_active_session_context_ratio"][("m",)]
    assert ratio.total == pytest.approx(1.06)
    assert ratio.counts[ratio.bounds.index(0.1)] == 1  # on the bound is in it
    assert ratio.counts[ratio.bounds.index(1.0)] == 1
    assert page["llmdiag_request_context_tokens"][("m",)].total == 1060


def test_sessions_stop_being_active_and_are_forgotten(benches) -> None:
    bench = benches(active_seconds=10, forget_seconds=100)
    bench.add(session=1, prompt_tokens=5)
    bench.page()
    bench.clock.now += 10
    bench.add(session=2, prompt_tokens=5)
    page = bench.page()
    assert page["llmdiag_active_sessions"][("m",)] == 2
    assert page["llmdiag_active_session_age_seconds"][("m",)].total == 10
    bench.clock.now += 5
    assert bench.value("llmdiag_active_sessions", "m") == 1
    bench.clock.now += 90
    page = bench.page()
    assert page["llmdiag_active_sessions"][("m",)] == 0
    assert "llmdiag_active_session_turns" not in page
    assert page["llmdiag_sessions_held"][()] == 1
    bench.add(session=2, prompt_tokens=50)
    assert bench.page()["llmdiag_session_growth_tokens"][("m",)].total == 45


def test_latency_by_length(bench) -> None:
    for prompt, ttft in ((2048, 1.0), (2049, 2.0), (10**6, 3.0), (None, 4.0)):
        bench.add(prompt_tokens=prompt, ttft_seconds=ttft, queue_seconds=0.05)
    page = bench.page()
    by_bin = {labels[1]: held.total for labels, held in page["llmdiag_ttft_seconds"].items()}
    assert by_bin == {"0-2k": 1.0, "2k-8k": 2.0, "128k-": 3.0, "unknown": 4.0}
    queue = page["llmdiag_queue_seconds"][("m", "0-2k")]
    assert (queue.counts[0], queue.total) == (1, 0.05)
    assert {labels[1] for labels in page["llmdiag_ttft_seconds"]} <= set(LENGTH_BINS)


def test_aborts_and_what_they_cost(bench) -> None:
    bench.add(prompt_tokens=10)
    bench.add(status="aborted", prompt_tokens=100, output_tokens=5)
    assert bench.value("llmdiag_tokens_after_abort_total", "m") is None
    bench.add(status="aborted", prompt_tokens=100, tokens_after_abort=30)
    page = bench.page()
    assert page["llmdiag_requests_total"][("m", "aborted")] == 2
    assert page["llmdiag_aborted_tokens_total"][("m",)] == 205
    assert page["llmdiag_tokens_after_abort_total"][("m",)] == 30


def test_only_answers_earn_a_model_its_name(benches) -> None:
    bench = benches(models=2)
    bench.add(model="ghost", status="error")
    for name in ("a", "b", "c", "other"):
        bench.add(model=name)
    bench.add(model="ghost", status="error")
    requests = bench.page()["llmdiag_requests_total"]
    assert requests[("a", "ok")] == requests[("b", "ok")] == 1
    assert requests[("other", "ok")] == 2
    assert requests[("other", "error")] == 2
    assert {labels[0] for labels in requests} == {"a", "b", "other"}


def test_labels_are_clean_and_never_double(benches) -> None:
    bench = benches(models=5)
    for name in ("x" * 100, "x" * 99, "a\nb", "", "other"):
        bench.add(model=name, tenant=name, prompt_tokens=10, duration_seconds=1.0)
    page = bench.page()  # by_labels fails on doubles
    for family in ("llmdiag_requests_total", "llmdiag_tenant_requests_total"):
        assert all(len(labels[0]) <= 64 and labels[0].isprintable() for labels in page[family])
    assert page["llmdiag_tenant_requests_total"][("x" * 64,)] == 2
    assert ("unknown", "ok") in page["llmdiag_requests_total"]


def test_tenant_shares_follow_the_window(benches) -> None:
    bench = benches(window_seconds=100)
    bench.page()
    bench.add(tenant="a", prompt_tokens=300)
    bench.add(tenant="b", prompt_tokens=100)
    bench.add(prompt_tokens=1000)  # nobody's
    page = bench.page()
    shares = page["llmdiag_tenant_token_share_ratio"]
    assert shares == {("a",): 0.75, ("b",): 0.25, ("other",): 0.0}
    assert page["llmdiag_active_tenants"][()] == 2
    bench.clock.now += 60
    bench.page()
    bench.add(tenant="b", prompt_tokens=100)
    assert bench.value("llmdiag_tenant_token_share_ratio", "a") == 0.6
    bench.clock.now += 60
    assert bench.value("llmdiag_tenant_token_share_ratio", "a") == 0.0
    bench.clock.now += 1000
    assert bench.value("llmdiag_tenant_token_share_ratio", "a") is None
    assert bench.value("llmdiag_active_tenants") == 0


def test_a_heavy_newcomer_takes_a_place_and_no_counter_falls(benches) -> None:
    bench = benches(tenants=2, window_seconds=100)
    for name in ("a", "b", "c"):
        bench.add(tenant=name, prompt_tokens=100)
    first = bench.page()["llmdiag_tenant_tokens_total"]
    assert ("c", "prompt") not in first
    assert first[("other", "prompt")] == 100
    bench.add(tenant="c", prompt_tokens=900)
    middle = bench.page()["llmdiag_tenant_tokens_total"]
    assert middle[("other", "prompt")] == 1000
    bench.add(tenant="c", prompt_tokens=50)
    last = bench.page()["llmdiag_tenant_tokens_total"]
    assert last[("c", "prompt")] == 50  # counted from when it came on the page
    assert last[("other", "prompt")] == 1000
    assert len({labels[0] for labels in last}) == 3


def test_in_flight_is_absent_until_somebody_sees_starts(bench) -> None:
    bench.add(tenant="a", prompt_tokens=1)
    assert "llmdiag_tenant_in_flight_requests" not in bench.page()
    bench.table.began("a")
    bench.table.began("a")
    bench.table.began("b")
    held = bench.page()["llmdiag_tenant_in_flight_requests"]
    assert held == {("a",): 2, ("other",): 1}
    for _ in range(3):
        bench.table.ended("a")  # once too often
    assert bench.page()["llmdiag_tenant_in_flight_requests"][("a",)] == 0


def test_no_clock_makes_a_session_old_or_young(bench) -> None:
    for ts in (1e12, 0.001, 1.7e9, -5.0):
        bench.add(ts=ts, session=1, prompt_tokens=100, duration_seconds=1.0)
        bench.clock.now += 2
    page = bench.page()
    assert page["llmdiag_active_session_age_seconds"][("m",)].total == 8
    assert page["llmdiag_active_sessions"][("m",)] == 1


def test_sources_are_a_closed_set(bench) -> None:
    for number in range(1000):
        bench.add(session=number, session_source=f"made up {number}")
    sources = bench.page()["llmdiag_session_source_total"]
    assert sources[("log",)] == 1000
    assert len(sources) == len(bench.table.sources) == 10


def test_the_table_stays_within_its_limit(benches) -> None:
    bench = benches(sessions=1000)
    for start in range(0, 5000, 100):
        bench.clock.now += 1
        bench.table.add_all([Event(1.0, "m", session=start + n, prompt_tokens=9) for n in range(100)])
    page = bench.page()
    assert 900 <= page["llmdiag_sessions_held"][()] <= 1000
    assert page["llmdiag_sessions_held"][()] + page["llmdiag_sessions_evicted_total"][()] == 5000
    assert 4999 in bench.table.sessions  # the youngest stay
    assert 0 not in bench.table.sessions


_FILL = """
import re
from diag_exporter.sessions.events import Event
from diag_exporter.sessions.series import session_rows
from diag_exporter.sessions.table import SessionTable

table = SessionTable()

def peak():  # not getrusage: its maximum is that of the process before exec
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

before = peak()
for start in range(0, 100_000, 2000):
    table.add_all([
        Event(float(n), "m", f"t{n % 5000}", n * 2654435761 % 2**64, "log", n, n // 2, 9, 0.5, 0.1, 1.0)
        for n in range(start, start + 2000)
    ])
session_rows(table)
print(len(table.sessions), peak() - before)
"""


def test_a_hundred_thousand_sessions_fit() -> None:
    """Resident megabytes, the reading of the page included."""
    done = subprocess.run(
        [sys.executable, "-c", _FILL], env={"PYTHONPATH": os.pathsep.join(sys.path)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    sessions, megabytes = done.stdout.split()
    assert int(sessions) == 100_000
    assert float(megabytes) <= 64


def test_many_threads_lose_nothing(bench) -> None:
    def work(number: int) -> None:
        for turn in range(500):
            bench.add(session=number, tenant=f"t{number}", prompt_tokens=turn + 1)
            if turn % 100 == 0:
                bench.page()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.value("llmdiag_requests_total", "m", "ok") == 4000
    assert sum(session.turns for session in bench.table.sessions.values()) == 4000


def test_heavy_hitters_keep_the_heavy() -> None:
    random.seed(5)
    hitters = HeavyHitters(100)
    true: dict[str, float] = {}
    heavy = [f"big{n}" for n in range(10)]
    for _ in range(20_000):
        name = random.choice(heavy) if random.random() < 0.5 else f"small{random.randrange(10**6)}"
        weight = random.uniform(1, 10)
        true[name] = true.get(name, 0.0) + weight
        hitters.add(name, weight)
    held = hitters.items()
    assert len(hitters) == 100
    assert set(sorted(held, key=held.__getitem__)[-10:]) == set(heavy)
    for name in heavy:
        assert true[name] <= held[name] <= true[name] + hitters.total / 100
    assert hitters.total == pytest.approx(sum(true.values()))


def test_a_window_skips_what_passed_while_nobody_looked() -> None:
    shares = WindowedShares(slots=10, slot_seconds=1.0)
    shares.turn(0.0)
    shares.add("a", 1.0)
    shares.turn(5.5)
    assert shares.weights() == ({"a": 1.0}, 1.0)
    shares.turn(1e9)
    assert shares.weights() == ({}, 0)
    shares.add("b", 2.0)
    shares.turn(1e9 + 0.5)
    assert shares.weights() == ({"b": 2.0}, 2.0)
