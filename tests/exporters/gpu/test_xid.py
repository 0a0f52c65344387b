"""Xids by event: there before the first one, counted per code, dated."""

from __future__ import annotations

import pytest

from tests.exporters.gpu.machine import Machine


def xid(machine: Machine, kind: str, code: str, gpu: int = 0) -> float | None:
    return machine.value("gpu_xid_total", gpu, kind, code)


def test_a_first_xid_is_an_increase(machine: Machine):
    machine.run()
    assert xid(machine, "fatal", "79", 5) == 0
    assert machine.value("gpu_xid_last_code", 5) == 0
    assert machine.series("gpu_xid_last_timestamp_seconds") == {}
    machine.driver.emit(5, 79)
    machine.run()
    assert xid(machine, "fatal", "79", 5) == 1
    assert xid(machine, "fatal", "79", 4) == 0
    assert machine.value("gpu_xid_last_code", 5) == 79
    assert machine.value("gpu_xid_last_timestamp_seconds", 5, "79") == machine.now


def test_several_in_one_pass_and_the_same_again(machine: Machine):
    machine.run()
    for code in (31, 31, 13, 31):
        machine.driver.emit(0, code)
    machine.run()
    assert xid(machine, "app", "31") == 3
    assert xid(machine, "app", "13") == 1
    assert machine.value("gpu_xid_last_code") == 31
    machine.driver.emit(0, 13)
    machine.run()
    assert machine.value("gpu_xid_last_code") == 13


@pytest.mark.parametrize(
    ("code", "kind"), [(38, "fatal"), (68, "app"), (154, "other"), (777, "other"), (2**40, "other")]
)
def test_rare_codes_share_a_series_that_was_there_before(machine: Machine, code, kind):
    machine.run()
    series = set(machine.series("gpu_xid_total"))
    machine.driver.emit(0, code)
    machine.run()
    assert xid(machine, kind, "other") == 1
    assert set(machine.series("gpu_xid_total")) == series
    label = str(code) if code < 1000 else "unknown"
    assert machine.value("gpu_xid_last_timestamp_seconds", 0, label) == machine.now


def test_the_last_words_of_a_gpu_that_is_lost_in_the_same_pass(machine: Machine):
    machine.run()
    machine.driver.emit(2, 79)
    machine.driver.gpu(2).code = 15
    machine.run()
    assert xid(machine, "fatal", "79", 2) == 1
    assert machine.value("gpu_up", 2) == 0
    machine.run()
    assert xid(machine, "fatal", "79", 2) == 1


def test_a_storm_is_counted_over_several_passes(machine: Machine):
    machine.run()
    for _ in range(60):
        machine.driver.emit(0, 31)
    machine.run()
    assert xid(machine, "app", "31") == 60


def test_other_events(machine: Machine):
    machine.run()
    machine.driver.emit(0, 0, kind=0x8000)
    machine.driver.emit(0, 0, kind=0x400)
    machine.run()
    assert machine.value("gpu_event_total", 0, "recovery_action") == 1
    assert machine.value("gpu_event_total", 0, "dram_retirement") == 1
    assert machine.value("gpu_event_total", 0, "gpu_unavailable") == 0
    assert machine.value("gpu_xid_last_code") == 0


def test_a_driver_without_event_queues_is_no_failure(machine: Machine):
    machine.driver.rule("nvmlEventSetCreate", code=3)
    machine.run()
    assert machine.failed == {}
    assert xid(machine, "fatal", "79") is None


def test_a_gpu_without_events_has_no_counters(machine: Machine):
    machine.driver.gpu(0).events = 0
    machine.run()
    assert xid(machine, "fatal", "79") is None
    assert xid(machine, "fatal", "79", 1) == 0
