"""Lost GPUs, resets, no driver, refusals: what is left goes on."""

from __future__ import annotations

from typing import Any

import pytest

from diag_exporter.gpu import GpuOptions, collectors
from tests.exporters.gpu.machine import Machine


def up(machine: Machine) -> dict[str, float]:
    return {labels[1]: value for labels, value in machine.series("gpu_up").items()}


def test_a_lost_gpu_is_down_and_the_others_go_on(machine: Machine):
    machine.run()
    machine.driver.gpu(2).code = 15
    machine.run()
    assert machine.failed == {}
    assert up(machine) == {str(one): float(one != 2) for one in range(8)}
    assert machine.value("gpu_power_watts", 2) is None
    assert machine.value("gpu_power_watts", 3) == pytest.approx(627.4)
    assert machine.series("gpu_expected")[()] == 8
    assert machine.series("gpu_visible")[()] == 7
    assert machine.value("gpu_info", 2, "NVIDIA H200", "590.48.01", "00000000:12:00.0") == 1


def test_a_gpu_that_comes_back_is_up_again(machine: Machine):
    machine.run()
    machine.driver.gpu(2).code = 15
    machine.run()
    machine.driver.gpu(2).code = 0
    machine.run(after=11)
    assert up(machine)["2"] == 1
    machine.run()
    assert machine.value("gpu_power_watts", 2) == pytest.approx(627.4)


def test_a_gpu_that_only_its_name_can_be_told_of_is_not_up(machine: Machine):
    machine.run()
    machine.driver.gpu(2).code = 15
    machine.run()
    machine.driver.gpu(2).code = 0
    # The library answers handle and uuid from memory; the card does not answer.
    machine.driver.rule("nvmlDeviceGetPersistenceMode", code=15, gpu=2)
    machine.run(after=11)
    assert up(machine)["2"] == 0


def test_a_gpu_that_left_the_count_stays_known(machine: Machine):
    machine.run()
    machine.driver.state.count = 6
    machine.run(after=31)
    assert [up(machine)[one] for one in "567"] == [1, 0, 0]
    assert machine.series("gpu_expected")[()] == 8
    assert machine.series("gpu_visible")[()] == 6


def test_a_gpu_lost_before_the_start_is_counted(machine: Machine):
    machine.driver.gpu(4).code = 15
    machine.start(expected=8)
    machine.run()
    assert machine.series("gpu_up")["unknown", "4"] == 0
    assert machine.series("gpu_visible")[()] == 7
    machine.driver.gpu(4).code = 0
    machine.run(after=11)
    assert ("unknown", "4") not in machine.series("gpu_up")
    assert up(machine)["4"] == 1


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetHandleByIndex_v2"]
)
def test_one_time_out_while_counting_loses_nobody(machine: Machine, call: str):
    machine.run()
    machine.driver.rule(call, code=10)
    machine.run(after=31)
    assert machine.failed == {}
    assert machine.series("gpu_visible")[()] == 8


def test_a_maximum_that_was_not_told_once_is_told_the_next_time(machine: Machine):
    machine.driver.rule("nvmlDeviceGetMaxClockInfo", code=10)
    machine.run()
    assert machine.value("gpu_sm_clock_max_hertz") is None
    machine.driver.no_rules()
    machine.run()
    assert machine.value("gpu_sm_clock_max_hertz") == 1.98e9


def test_a_card_without_name_and_bus_is_a_card(machine: Machine):
    machine.driver.rule("nvmlDeviceGetName", code=3)
    machine.driver.rule("nvmlDeviceGetPciInfo_v3", code=3)
    machine.run()
    assert machine.value("gpu_info", 0, "unknown", "590.48.01", "unknown") == 1
    assert up(machine)["0"] == 1


def test_a_gpu_that_asks_for_a_reset_is_down_and_says_why(machine: Machine):
    machine.run()
    machine.driver.gpu(1).code = 16
    machine.run()
    assert up(machine)["1"] == 0
    assert machine.value("gpu_reset_required", 1) == 1
    assert machine.value("gpu_reset_required", 0) == 0


def test_all_lost_at_once_is_taken_for_a_reload_but_not_again_and_again(machine: Machine):
    machine.run()
    for index in range(8):
        machine.driver.gpu(index).code = 15
    for _ in range(20):
        machine.run(after=11)
    assert machine.series("gpu_visible")[()] == 0
    assert machine.series("nvml_reloads_total")[()] == 1
    for index in range(8):
        machine.driver.gpu(index).code = 0
    machine.run(after=11)
    assert machine.series("gpu_visible")[()] == 8


def test_without_a_driver_the_page_says_so_and_it_is_tried_again(machine: Machine):
    machine.driver.rule("nvmlInitWithFlags", code=9)
    machine.run()
    assert machine.series("nvml_up") == {(): 0.0}
    assert machine.series("gpu_visible") == {(): 0.0}
    assert "clocks" in machine.failed
    assert "driver not loaded" in str(machine.failed["clocks"])
    calls = machine.driver.state.calls
    machine.run()
    assert machine.driver.state.calls == calls  # not asked in every pass
    machine.driver.no_rules()
    machine.run(after=11)
    assert machine.failed == {}
    assert machine.series("gpu_visible") == {(): 8.0}


def test_refused_readings_are_absent_and_not_asked_again(machine: Machine):
    machine.driver.rule("nvmlDeviceGetTotalEnergyConsumption", code=3)
    machine.run()
    assert machine.value("gpu_energy_joules_total") is None
    asked = machine.fleet.library.statistics.calls["nvmlDeviceGetTotalEnergyConsumption"][0]
    for _ in range(5):
        machine.run()
    assert machine.fleet.library.statistics.calls["nvmlDeviceGetTotalEnergyConsumption"][0] == asked
    machine.driver.no_rules()
    machine.run(after=601)
    assert machine.value("gpu_energy_joules_total") == 5000


def test_a_call_that_fails_once_costs_its_own_reading_only(machine: Machine):
    machine.driver.rule("nvmlDeviceGetPowerUsage", code=999, gpu=0)
    machine.run()
    assert machine.failed == {}
    assert machine.value("gpu_power_watts", 0) is None
    assert machine.value("gpu_power_limit_watts", 0) == 700
    assert machine.value("gpu_power_watts", 1) is not None
    assert machine.series("nvml_errors_total") == {("unknown",): 1.0}
    machine.driver.no_rules()
    machine.run()
    assert machine.value("gpu_power_watts", 0) is not None


def test_a_driver_with_the_first_memory_struct_only(machine: Machine):
    machine.driver.rule("nvmlDeviceGetMemoryInfo_v2", code=25)
    machine.run()
    assert machine.value("gpu_memory_used_bytes") == 33_934_016_512
    assert machine.value("gpu_memory_reserved_bytes") is None


def test_everything_unsupported_is_an_empty_page_and_no_failure(machine: Machine):
    for call in (
        "ClockInfo", "MaxClockInfo", "CurrentClocksEventReasons", "FieldValues", "PowerUsage",
        "EnforcedPowerLimit", "PowerManagementDefaultLimit", "TotalEnergyConsumption",
        "UtilizationRates", "MemoryInfo", "MemoryInfo_v2", "TemperatureV", "Temperature",
        "MarginTemperature", "TotalEccErrors", "RemappedRows", "CurrPcieLinkWidth", "MaxPcieLinkWidth",
        "CurrPcieLinkGeneration", "MaxPcieLinkGeneration", "PcieReplayCounter", "NvLinkState", "MigMode",
        "ComputeRunningProcesses_v3", "ProcessUtilization", "SupportedEventTypes", "CpuAffinity",
        "PersistenceMode",
    ):  # fmt: skip
        machine.driver.rule(f"nvmlDeviceGet{call}", code=3)
    machine.run()
    assert machine.failed == {}
    left = {name for name in machine.rows if not name.startswith("llmdiag_nvml")}
    assert left == {
        "llmdiag_gpu_info",
        "llmdiag_gpu_up",
        "llmdiag_gpu_reset_required",
        "llmdiag_gpu_expected",
        "llmdiag_gpu_visible",
    }


def test_profiles_and_switches(machine: Machine):
    def names(**options: Any) -> list[str]:
        return [one.name for one in collectors(GpuOptions(**options))]

    assert names(profile="minimal") == ["clocks", "thermals", "power", "usage", "xid", "identity"]
    assert "nvlink" not in names(without=frozenset({"nvlink"}))
    machine.start(profile="full")
    machine.driver.field(0, 173, 5)
    machine.run()
    assert machine.value("gpu_pcie_errors_total", 0, "correctable") == 5
    assert machine.value("gpu_nvlink_up", 0, "17") == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"own": ("vllm(",)}, "--own 'vllm('"),
        ({"top_n": 0}, "top_n must be 1 or more"),
        ({"expected": -1}, "0 or more"),
        ({"without": frozenset({"clock"})}, "no GPU topic to switch off: clock (there are clocks"),
        ({"without": frozenset({"identity"})}, "no GPU topic to switch off: identity"),
    ],
)
def test_wrong_options_get_one_clear_line(options, complaint):
    with pytest.raises(ValueError, match=r"[a-z]") as caught:
        collectors(GpuOptions(**options))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
