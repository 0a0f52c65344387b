"""The recording script, on the stand-in: it must work the one time a GPU is at hand."""

from __future__ import annotations

import json

from tests.exporters.gpu.capture import main, summary
from tests.exporters.gpu.machine import Machine


def test_an_idle_capture_holds_times_rows_and_no_names(machine: Machine, tmp_path):
    machine.driver.state.count = 2
    machine.driver.field(0, 270, 2e9)
    output = tmp_path / "capture.json"
    assert main(["--idle-only", "--seconds", "0.1", "--output", str(output)]) == 0
    text = output.read_text()
    idle = json.loads(text)["idle"]
    assert idle["driver"] == "590.48.01"
    assert idle["calls"]["nvmlDeviceGetPowerUsage"]["count"] >= 2
    assert idle["throttle_fields"]["270"] == 2e9
    assert [["0"], 627.4] in idle["rows"]["llmdiag_gpu_power_watts"]
    assert machine.uuid(0) not in text
    assert "00000000:10:00.0" not in text


def test_without_a_driver_it_says_so(machine: Machine, tmp_path, capsys):
    machine.driver.rule("nvmlInitWithFlags", code=9)
    assert main(["--idle-only", "--output", str(tmp_path / "x.json")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("capture: nvmlInit: driver not loaded (NVML code 9): is the NVIDIA driver")
    assert said.count("\n") == 1


def test_percentiles():
    found = summary([float(one) for one in range(101)])
    assert found == {"count": 101, "p50": 50.0, "p99": 99.0, "max": 100.0}
