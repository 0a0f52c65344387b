"""Whole pages: recorded GPUs replayed, and small goldens of scripted states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exporters.gpu.machine import Machine
from tests.exporters.gpu.replay import RECORDED, recorded, replay

GOLDEN = Path(__file__).parent / "golden"


def compare(name: str, page: str, *, update: bool) -> None:
    """Types and samples; the prose of HELP may change without a golden noticing."""
    text = "".join(line + "\n" for line in page.splitlines() if not line.startswith("# HELP"))
    golden = GOLDEN / f"{name}.prom"
    if update:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("state", ["idle", "load"])
def test_a_recorded_gpu(machine: Machine, checkout: Path, state: str, update_golden: bool):
    numbers, processes = recorded(checkout / "tests/captures" / f"nvidia_gpu_exporter_h200_{state}.prom")
    replay(machine.driver, numbers, processes)
    for pid, name, _ in processes:
        machine.process(pid, name)
    machine.run()
    assert machine.failed == {}
    for theirs, (ours, *labels) in RECORDED.items():
        assert machine.value(ours, 0, *labels) == pytest.approx(numbers[theirs]), theirs
    assert machine.value("gpu_foreign_memory_bytes") == sum(memory for _, _, memory in processes)
    compare(f"h200_{state}", machine.page("gpu_", "engine_"), update=update_golden)


def test_a_throttled_gpu(machine: Machine, update_golden: bool):
    machine.driver.state.count = 2
    machine.run()
    machine.driver.gpu(1).reasons, machine.driver.gpu(1).sm = 0x20 | 0x40, 1100
    machine.driver.gpu(1).temperature, machine.driver.gpu(1).margin = 88, -1
    machine.driver.field(1, 270, 1e9)
    machine.run()
    page = machine.page("gpu_clock_event", "gpu_sm_clock", "gpu_temperature")
    compare("throttled", page, update=update_golden)


def test_a_neighbour(machine: Machine, update_golden: bool):
    machine.driver.state.count = 2
    machine.process(100, "VLLM::EngineCore", cpus="0-7")
    machine.process(200, "python3", "train.py")
    machine.driver.run(0, 100, memory=120 << 30, sm=60)
    machine.driver.run(0, 200, memory=8 << 30, sm=40)
    machine.run()
    page = machine.page("gpu_process", "gpu_foreign", "gpu_pid", "engine_")
    compare("neighbour", page, update=update_golden)


def test_a_lost_gpu(machine: Machine, update_golden: bool):
    machine.driver.state.count = 2
    machine.run()
    machine.driver.emit(1, 79)
    machine.driver.gpu(1).code = 15
    machine.run()
    page = machine.page("gpu_up", "gpu_visible", "gpu_expected", "gpu_info", "gpu_power_watts", "gpu_xid")
    compare("lost", page, update=update_golden)
