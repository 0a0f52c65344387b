"""The sampler: what is served when collectors fail, hang, grow old or answer nonsense."""

from __future__ import annotations

import math
import threading
import time

import pytest

from diag_exporter.families import Family, Histogram, NoData, Row
from diag_exporter.snapshot import Sampler

CELSIUS = "llmdiag_test_celsius"
EVENTS = "llmdiag_test_events_total"


def test_before_the_first_pass_there_is_nothing_and_the_age_says_so(sampler, scripted):
    snapshot = sampler(scripted()).snapshot()
    assert snapshot.rows == {}
    assert snapshot.age == math.inf
    assert [family.name for family in snapshot.families] == [CELSIUS, EVENTS]


def test_a_pass_leaves_rows_and_a_healthy_collector(sampler, scripted, clock):
    one = sampler(scripted())
    one.sample()
    clock.pass_seconds(2.0)
    snapshot = one.snapshot()
    assert snapshot.rows[CELSIUS] == (Row(("GPU-1",), 61.0),)
    assert snapshot.age == 2.0
    health = snapshot.health["scripted"]
    assert (health.success, health.failures, health.last_success) == (True, 0, clock.now - 2.0)


def test_a_snapshot_calls_no_collector(sampler, scripted):
    collector = scripted()
    one = sampler(collector)
    one.sample()
    for _ in range(10):
        one.snapshot()
    assert collector.calls == 1


def test_a_failure_keeps_the_last_rows_until_they_are_stale(sampler, scripted, clock):
    collector = scripted()
    one = sampler(collector, fast_seconds=1.0, stale_after=3.0)
    one.sample()
    collector.failure = RuntimeError("the driver is gone")
    clock.pass_seconds(2.5)
    one.sample()
    now = one.snapshot()
    assert CELSIUS in now.rows
    assert now.health["scripted"].error == "RuntimeError: the driver is gone"
    assert not now.health["scripted"].success
    clock.pass_seconds(0.6)
    one.sample()
    later = one.snapshot()
    assert CELSIUS not in later.rows
    assert later.health["scripted"].stale
    assert later.health["scripted"].failures == 2
    assert later.age == 0.0


def test_one_collector_that_fails_takes_no_other_with_it(sampler, scripted):
    bad = scripted(name="bad", failure=OSError("no"), families=(Family("llmdiag_bad", "gauge", "Bad."),))
    one = sampler(bad, scripted(name="good"))
    one.sample()
    snapshot = one.snapshot()
    assert CELSIUS in snapshot.rows
    assert snapshot.health["good"].success
    assert not snapshot.health["bad"].success


def test_nothing_to_say_is_no_failure_and_removes_what_was_said(sampler, scripted):
    collector = scripted()
    one = sampler(collector)
    one.sample()
    collector.failure = NoData("no such device")
    one.sample()
    snapshot = one.snapshot()
    assert CELSIUS not in snapshot.rows
    assert snapshot.health["scripted"].success
    assert snapshot.health["scripted"].failures == 0


def test_slow_collectors_rest_while_fast_ones_run(sampler, scripted):
    fast, slow = scripted(name="fast"), scripted(name="slow", group="slow")
    one = sampler(fast, slow)
    one.sample()
    one.sample(["fast"])
    assert (fast.calls, slow.calls) == (2, 1)


def test_slow_rows_live_as_long_as_their_own_interval(sampler, scripted, clock):
    slow = Family("llmdiag_slow", "gauge", "Slow.")
    rows = {"llmdiag_slow": [Row((), 1.0)]}
    one = sampler(
        scripted(name="fast"),
        scripted(name="slow", group="slow", families=(slow,), rows=rows),
        fast_seconds=1.0,
        slow_seconds=10.0,
    )
    one.sample()
    clock.pass_seconds(5.0)
    assert set(one.snapshot().rows) == {"llmdiag_slow"}
    clock.pass_seconds(26.0)
    assert set(one.snapshot().rows) == set()


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_jump_of_the_wall_clock_makes_nothing_stale_or_eternal(sampler, scripted, clock, jump):
    one = sampler(scripted(), fast_seconds=1.0, stale_after=3.0)
    one.sample()
    clock.now += jump
    assert CELSIUS in one.snapshot().rows
    assert one.snapshot().age == 0.0
    clock.steady_now += 3.5
    assert CELSIUS not in one.snapshot().rows


def test_what_would_spoil_the_page_is_left_out_and_counted(sampler, scripted):
    rows = {
        CELSIUS: [Row(("GPU-1",), 1.0), Row(("GPU-1",), 2.0), Row(("GPU-2",), math.nan)],
        EVENTS: [Row(("a",), -1.0), Row(("b",), 0.0), Row(("c",), math.inf)],
    }
    one = sampler(scripted(rows=rows))
    one.sample()
    snapshot = one.snapshot()
    assert snapshot.rows[CELSIUS] == (Row(("GPU-1",), 1.0),)
    assert snapshot.rows[EVENTS] == (Row(("b",), 0.0),)
    assert snapshot.health["scripted"].dropped == 4
    assert snapshot.health["scripted"].success


def test_a_histogram_whose_counts_do_not_fit_is_left_out(sampler, scripted):
    family = Family("llmdiag_test_seconds", "histogram", "Seconds.", ("k",))
    good, short = Histogram((1.0, 2.0), (1, 0, 2), 7.0), Histogram((1.0, 2.0), (1, 0), 7.0)
    negative = Histogram((1.0,), (1, -1), 7.0)
    rows = {family.name: [Row(("g",), good), Row(("s",), short), Row(("n",), negative), Row(("v",), 1.0)]}
    one = sampler(scripted(families=(family,), rows=rows))
    one.sample()
    assert one.snapshot().rows[family.name] == (Row(("g",), good),)


@pytest.mark.parametrize(
    "rows",
    [{"llmdiag_undeclared": [Row((), 1.0)]}, {CELSIUS: [Row(("a", "b"), 1.0)]}, {CELSIUS: [Row((), 1.0)]}],
)
def test_a_row_that_was_never_declared_is_the_collectors_failure(sampler, scripted, rows):
    one = sampler(scripted(rows=rows))
    one.sample()
    assert not one.snapshot().health["scripted"].success
    assert one.snapshot().rows == {}


def test_two_collectors_may_fill_one_family_and_no_series_comes_twice(sampler, scripted):
    rows = {CELSIUS: [Row(("GPU-1",), 99.0), Row(("GPU-2",), 50.0)]}
    one = sampler(scripted(name="a"), scripted(name="b", rows=rows))
    one.sample()
    assert one.snapshot().rows[CELSIUS] == (Row(("GPU-1",), 61.0), Row(("GPU-2",), 50.0))
    assert len(one.families) == 2


def test_two_collectors_of_one_name_are_refused(scripted):
    with pytest.raises(ValueError, match="same name"):
        Sampler([scripted(), scripted()], clock=time.time)


def test_a_failure_is_said_once_for_all_it_befalls_and_so_is_its_end(sampler, scripted, caplog):
    caplog.set_level("INFO", "diag_exporter")
    first, second = scripted(name="a", failure=OSError("gone")), scripted(name="b", failure=OSError("gone"))
    one = sampler(first, second)
    for _ in range(5):
        one.sample()
    first.failure, second.failure = None, OSError("still")
    one.sample()
    assert [record.message for record in caplog.records] == [
        "a, b failed: OSError: gone",
        "a: works again",
        "b failed: OSError: still",
    ]


def _until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_wedged_call_is_told_and_old_rows_go(scripted):
    gate = threading.Event()
    gate.set()
    collector = scripted(gate=gate)
    one = Sampler([collector], fast_seconds=0.05, slow_seconds=0.1, clock=time.time)
    one.start()
    _until(lambda: collector.calls > 2)
    gate.clear()
    _until(lambda: one.snapshot().health["scripted"].wedged)
    wedged = one.snapshot()
    assert wedged.health["scripted"].stale
    assert wedged.rows == {}
    assert wedged.age > 0.1
    assert one.stop(timeout=0.1) is False
    assert collector.closed == 0
    gate.set()
    assert one.stop() is True
    assert collector.closed == 1


def test_a_thread_keeps_both_paces_and_stops(scripted):
    fast, slow = scripted(name="fast"), scripted(name="slow", group="slow")
    one = Sampler([fast, slow], fast_seconds=0.05, slow_seconds=0.5, clock=time.time)
    one.start()
    _until(lambda: fast.calls >= 8)
    assert slow.calls in (1, 2)
    assert one.stop()
    count = fast.calls
    time.sleep(0.15)
    assert fast.calls == count


def test_whoever_is_slow_to_answer_gets_as_much_rest(scripted):
    slow = scripted(seconds=0.1)
    one = Sampler([slow], fast_seconds=0.05, slow_seconds=5.0, clock=time.time)
    one.start()
    time.sleep(1.0)
    one.stop()
    # Without rest it would be asked ten times in a second.
    assert slow.calls <= 6
    assert CELSIUS in one.snapshot().rows
