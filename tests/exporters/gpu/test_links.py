"""PCIe, NVLink, ECC, row remapping, MIG."""

from __future__ import annotations

from diag_exporter.gpu.collectors.pcie import Unwrapped
from tests.exporters.gpu.machine import Machine


def test_a_link_below_its_maximum(machine: Machine):
    machine.driver.gpu(6).width, machine.driver.gpu(6).generation = 8, 3
    machine.driver.gpu(6).replays = 12
    machine.run()
    assert machine.value("gpu_pcie_link_width", 6) == 8
    assert machine.value("gpu_pcie_link_width_max", 6) == 16
    assert machine.value("gpu_pcie_link_generation", 6) == 3
    assert machine.value("gpu_pcie_link_generation_max", 6) == 5
    assert machine.value("gpu_pcie_replays_total", 6) == 12


def test_a_link_that_answers_no_width_has_none(machine: Machine):
    machine.driver.gpu(0).width = 0
    machine.run()
    assert machine.value("gpu_pcie_link_width") is None


def test_byte_counters_go_on_past_32_bits():
    counter = Unwrapped()
    assert counter.advance(4_000_000_000) == 4_000_000_000
    assert counter.advance(1_000) == 2**32 + 1_000
    assert counter.advance(2_000) == 2**32 + 2_000
    assert counter.advance(0) == 0  # from below the upper half it can only be a reset


def test_bytes_are_unwrapped_on_the_page(machine: Machine):
    machine.start(profile="full")
    machine.driver.field(0, 197, 4_000_000_000, kind=1)
    machine.run()
    machine.driver.field(0, 197, 5, kind=1)
    machine.run(after=15)
    assert machine.value("gpu_pcie_sent_bytes_total") == 2**32 + 5
    assert machine.value("gpu_pcie_received_bytes_total") is None


def test_a_link_that_went_down_and_errors(machine: Machine):
    machine.driver.gpu(1).links_up &= ~(1 << 4)
    machine.driver.field(1, 59, 3)
    machine.driver.no_field(1, 45)
    machine.run()
    assert machine.value("gpu_nvlink_links", 1) == 18
    assert machine.value("gpu_nvlink_links_active", 1) == 17
    assert machine.value("gpu_nvlink_errors_total", 1, "recovery") == 3
    assert machine.value("gpu_nvlink_errors_total", 1, "crc_data") is None


def test_a_card_without_nvlink_is_asked_once(machine: Machine):
    machine.driver.gpu(0).links = 0
    machine.driver.no_field(0, 91)
    machine.run()
    assert machine.value("gpu_nvlink_links") is None
    assert machine.value("gpu_nvlink_errors_total", 0, "replay") is None
    asked = machine.fleet.library.statistics.calls["nvmlDeviceGetNvLinkState"][0]
    assert asked == 1 + 7 * 18


def test_memory_errors(machine: Machine):
    machine.driver.gpu(0).ecc[0][0], machine.driver.gpu(0).ecc[1][0] = 7, 2
    machine.driver.gpu(0).ecc[1][1] = 9
    machine.driver.gpu(0).remap[:] = (1, 2, 1, 0)
    machine.driver.field(0, 230, 1, kind=1)
    machine.driver.field(0, 30, 4)
    machine.run()
    assert machine.value("gpu_ecc_errors_total", 0, "corrected", "volatile") == 7
    assert machine.value("gpu_ecc_errors_total", 0, "uncorrected", "volatile") == 2
    assert machine.value("gpu_ecc_errors_total", 0, "uncorrected", "aggregate") == 9
    assert machine.value("gpu_remapped_rows_total", 0, "uncorrectable") == 2
    assert machine.value("gpu_row_remap_pending") == 1
    assert machine.value("gpu_row_remap_failure") == 0
    assert machine.value("gpu_recovery_action") == 1
    assert machine.value("gpu_retired_pages_total", 0, "double_bit") == 4
    assert machine.value("gpu_retired_pages_total", 0, "single_bit") is None


def test_mig_instances(machine: Machine):
    gpu = machine.driver.gpu(0)
    gpu.mig_on, gpu.migs = 1, 2
    for place, used in enumerate((10, 20)):
        gpu.mig[place].gi, gpu.mig[place].ci = place + 7, 0
        gpu.mig[place].total, gpu.mig[place].used = 100, used
    machine.run()
    assert machine.value("gpu_mig_mode", 0) == 1
    assert machine.value("gpu_mig_mode", 1) == 0
    assert machine.value("gpu_mig_instances", 0) == 2
    assert machine.value("gpu_mig_instances", 1) is None
    assert machine.value("gpu_mig_memory_used_bytes", 0, "8", "0") == 20
    # What MIG takes away is absent, not 0.
    assert machine.value("gpu_utilization_ratio", 0) is None
    assert machine.value("gpu_foreign_sm_ratio", 0) is None
    assert machine.value("gpu_foreign_memory_bytes", 0) == 0


def test_no_instances_are_looked_up_while_mig_is_off(machine: Machine):
    machine.run()
    assert "nvmlDeviceGetMigDeviceHandleByIndex" not in machine.fleet.library.statistics.calls
