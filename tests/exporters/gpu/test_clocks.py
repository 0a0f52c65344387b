"""Throttling: flags, accumulated time, and times that cannot be true."""

from __future__ import annotations

import pytest

from tests.exporters.gpu.machine import Machine


def held(machine: Machine, reason: str, gpu: int = 0) -> float | None:
    return machine.value("gpu_clock_event_seconds_total", gpu, reason)


def test_a_thermal_throttle_shows_at_once_and_passes(machine: Machine):
    machine.run()
    assert machine.value("gpu_clock_event_active", 3, "hw_thermal") == 0
    gpu = machine.driver.gpu(3)
    gpu.reasons, gpu.sm = 0x40 | 0x8, 1200
    machine.driver.field(3, 270, 900_000_000)
    machine.run()
    assert machine.value("gpu_clock_event_active", 3, "hw_thermal") == 1
    assert machine.value("gpu_clock_event_active", 3, "hw_slowdown") == 1
    assert machine.value("gpu_clock_event_active", 3, "sw_thermal") == 0
    assert machine.value("gpu_clock_event_active", 2, "hw_thermal") == 0
    assert machine.value("gpu_sm_clock_hertz", 3) == 1.2e9
    assert machine.value("gpu_sm_clock_max_hertz", 3) == 1.98e9
    assert held(machine, "hw_thermal", 3) == pytest.approx(0.9)
    gpu.reasons = 0
    machine.run()
    assert machine.value("gpu_clock_event_active", 3, "hw_thermal") == 0
    assert held(machine, "hw_thermal", 3) == pytest.approx(0.9)  # the time stays


def test_reasons_the_gpu_does_not_know_are_absent(machine: Machine):
    machine.driver.gpu(0).reasons_known = 0x4 | 0x20
    machine.run()
    reasons = {labels[2] for labels in machine.series("gpu_clock_event_active") if labels[1] == "0"}
    assert reasons == {"sw_power_cap", "sw_thermal"}


def test_an_older_driver_is_asked_for_the_older_ids(machine: Machine):
    machine.driver.state.driver = b"575.57.08"
    for identity, value in ((251, 1e9), (252, 2e9), (253, 3e9), (269, 99e9), (270, 99e9), (271, 99e9)):
        machine.driver.field(0, identity, value)
    machine.run()
    assert [held(machine, one) for one in ("sw_thermal", "hw_thermal", "hw_power_brake")] == [1, 2, 3]


def test_a_driver_between_the_numberings_tells_only_what_never_moved(machine: Machine):
    machine.driver.state.driver = b"580.76.05"
    machine.driver.field(0, 75, 4e9)
    machine.run()
    assert held(machine, "sw_thermal") == 4
    assert held(machine, "hw_thermal") is None


def test_software_thermal_time_falls_back_to_the_old_field(machine: Machine):
    machine.driver.no_field(0, 269)
    machine.driver.field(0, 75, 5e9)
    machine.run()
    assert held(machine, "sw_thermal", 0) == 5
    # Once begun with a field, it stays: the other one counts from elsewhere.
    machine.driver.field(0, 269, 1e9)
    machine.run(after=601)
    assert held(machine, "sw_thermal", 0) == 5


def test_a_step_longer_than_the_time_that_passed_is_refused_and_counted(machine: Machine):
    machine.driver.field(0, 74, 10e9)
    machine.run()
    machine.driver.field(0, 74, 500e9)
    machine.run(after=5)
    assert held(machine, "sw_power_cap") == 10
    assert machine.value("gpu_clock_event_refused_total", 0) == 1
    assert machine.value("gpu_clock_event_refused_total", 1) == 0
    machine.driver.field(0, 74, 504e9)
    machine.run(after=5)
    assert held(machine, "sw_power_cap") == 14  # and it goes on from there


def test_times_of_a_driver_that_restarted_begin_anew(machine: Machine):
    machine.driver.field(0, 74, 10e9)
    machine.run()
    machine.driver.field(0, 74, 1e9)
    machine.run()
    assert held(machine, "sw_power_cap") == 1


def test_a_wall_clock_set_back_refuses_nothing(machine: Machine):
    machine.driver.field(0, 74, 10e9)
    machine.run()
    machine.driver.field(0, 74, 20e9)
    machine.run(after=-3600)
    assert held(machine, "sw_power_cap") == 20
    assert machine.value("gpu_clock_event_refused_total", 0) == 0


def test_a_power_cap_shows_as_a_limit_below_the_default(machine: Machine):
    machine.driver.gpu(1).limit = 400_000
    machine.driver.gpu(1).reasons = 0x4
    machine.run()
    assert machine.value("gpu_power_limit_watts", 1) == 400
    assert machine.value("gpu_power_default_limit_watts", 1) == 700
    assert machine.value("gpu_clock_event_active", 1, "sw_power_cap") == 1


def test_thresholds_where_the_card_has_them(machine: Machine):
    machine.driver.gpu(0).threshold[:] = (92, 89, 105)
    machine.run()
    assert machine.value("gpu_temperature_slowdown_celsius", 0) == 89
    assert machine.value("gpu_temperature_shutdown_celsius", 0) == 92
    assert machine.value("gpu_memory_temperature_max_celsius", 0) == 105
    assert machine.value("gpu_temperature_slowdown_celsius", 1) is None  # it tells a margin
    assert machine.value("gpu_temperature_margin_celsius", 1) == 35
