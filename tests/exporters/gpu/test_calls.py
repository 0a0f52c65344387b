"""The door to the driver: value types, error codes, field ids, private names."""

from __future__ import annotations

import _ctypes
import ctypes
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from diag_exporter.gpu import nvml
from diag_exporter.gpu.nvml import Library, decode_fields, throttle_fields
from diag_exporter.snapshot import Sampler
from tests.exporters.gpu.machine import Machine
from tests.exporters.gpu.standin import Driver, State, build


def entry(kind: int, value: bytes, code: int = 0, identity: int = 7) -> bytes:
    return struct.pack("=IIqqII8s", identity, 0, 0, 0, kind, code, value)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (0, struct.pack("<d", 1.5), 1.5),
        (1, struct.pack("<I", 40) + b"\xff" * 4, 40.0),
        (2, struct.pack("<Q", 2**40), float(2**40)),
        (3, struct.pack("<Q", 2**63), float(2**63)),
        (4, struct.pack("<q", -5), -5.0),
        (5, struct.pack("<i", -6) + b"\xff" * 4, -6.0),
        (6, struct.pack("<H", 65535) + b"\xff" * 6, 65535.0),
    ],
)
def test_a_field_is_decoded_by_its_type(kind, raw, value):
    assert decode_fields(entry(kind, raw)).values == {7: value}


@pytest.mark.parametrize(
    ("kind", "raw"),
    [(3, b"\xff" * 8), (1, b"\xff" * 8), (0, struct.pack("<d", float("nan"))), (7, bytes(8)), (99, bytes(8))],
)
def test_blank_values_and_unknown_types_are_no_values(kind, raw):
    assert decode_fields(entry(kind, raw)).values == {}


def test_each_field_has_its_own_return_code():
    raw = entry(3, bytes(8), identity=1) + entry(3, bytes(8), code=3, identity=2) + entry(3, bytes(8), 10, 3)
    answers = decode_fields(raw)
    assert answers.values == {1: 0.0}
    assert answers.refused == {2}  # a time-out may pass, a refusal is final
    with pytest.raises(nvml.Lost):
        decode_fields(entry(3, bytes(8), code=15))


@pytest.mark.parametrize(
    ("driver", "hardware_thermal"),
    [
        ("570.133.20", None),
        ("575.57.08", (252,)),
        ("580.65.06", (252,)),
        ("580.76.05", None),  # between the two numberings: nobody has looked
        ("580.82.07", (270,)),
        ("590.48.01", (270,)),
        ("unheard-of", None),
    ],
)
def test_throttle_ids_follow_the_driver(driver, hardware_thermal):
    fields = throttle_fields(driver)
    assert fields.get("hw_thermal") == hardware_thermal
    assert fields["sw_power_cap"] == (74,)
    assert 75 in fields["sw_thermal"]


def test_the_stand_in_and_its_mirror_agree(driver, library):
    del driver
    assert ctypes.CDLL(str(library)).standin_size() == ctypes.sizeof(State)
    assert ctypes.sizeof(pynvml.c_nvmlFieldValue_t) == 40
    assert ctypes.sizeof(pynvml.c_nvmlProcessUtilizationSample_t) == 32
    assert ctypes.sizeof(pynvml.c_nvmlEventData_t) == 32


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (3, nvml.Unsupported),
        (6, nvml.NotFound),
        (10, nvml.NoAnswer),
        (13, nvml.FunctionMissing),
        (15, nvml.Lost),
        (16, nvml.ResetRequired),
        (18, nvml.Replaced),
        (25, nvml.Unsupported),
        (999, nvml.NoAnswer),
        (4711, nvml.NoAnswer),
    ],
)
def test_codes_become_exceptions(driver, code, kind):
    library = Library()
    library.open()
    driver.rule("nvmlDeviceGetCount_v2", code=code)
    with pytest.raises(kind) as caught:
        library.call("nvmlDeviceGetCount")
    assert caught.value.code == code
    assert f"code {code}" in str(caught.value)
    library.close()


def test_calls_are_counted_and_timed(driver):
    library = Library()
    library.open()
    driver.rule("nvmlDeviceGetCount_v2", delay=0.02)
    library.call("nvmlDeviceGetCount")
    count, seconds = library.statistics.calls["nvmlDeviceGetCount"]
    assert count == 1
    assert 0.02 <= seconds < 1
    assert sum(library.statistics.histogram().counts) == 3  # init, driver version, count
    library.close()


def test_the_binding_calls_an_idle_gpu_an_error_and_we_do_not(driver):
    driver.gpu(0).processes = 0
    library = Library()
    library.open()
    handle = library.call("nvmlDeviceGetHandleByIndex", 0)
    assert library.process_utilization(handle, 0) == []
    assert library.statistics.errors == {}
    library.close()


def test_a_wedged_call_stops_the_sampling_thread_and_not_the_page(machine: Machine):
    def power() -> object:
        return sampler.snapshot().rows.get("llmdiag_gpu_power_watts")

    def stuck() -> tuple[str, float]:
        return machine.fleet.library.in_flight() or ("", 0.0)

    sampler = Sampler(machine.collectors, fast_seconds=0.1, slow_seconds=0.2, stale_after=10, clock=time.time)
    sampler.start()
    until(power)
    machine.driver.rule("nvmlDeviceGetPowerUsage", delay=3)
    until(lambda: stuck()[0] == "nvmlDeviceGetPowerUsage")
    first = sampler.snapshot()
    assert first.rows["llmdiag_gpu_power_watts"]  # what was read is there to serve
    until(lambda: not power())  # and leaves the page when it is old
    assert sampler.snapshot().age > first.age + 0.3
    assert stuck()[0] == "nvmlDeviceGetPowerUsage"
    assert stuck()[1] > 0.3
    machine.driver.no_rules()
    until(power)
    assert sampler.stop()
    assert not machine.fleet.library.opened  # the driver was left in peace


def until(seen: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


_SCRIPT = """
import shutil, sys
from pathlib import Path
from tests.exporters.gpu.machine import Machine
from tests.exporters.gpu.standin import Driver
machine = Machine(Driver(Path(sys.argv[1])), Path(sys.argv[2]))
"""


def outside(tmp_path: Path, script: str, *arguments: str) -> str:
    """Run in a fresh process in which the loader itself finds the stand-in."""
    environment = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "STANDIN_STATE": str(tmp_path / "state"),
        "PYTHONPATH": ":".join(sys.path),
    }
    command = [sys.executable, "-c", _SCRIPT + script, str(tmp_path / "state"), str(tmp_path), *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_replaced_driver_is_loaded_anew(tmp_path):
    new = tmp_path / "new"
    new.mkdir()
    build(tmp_path)
    build(new, generation=2)
    script = """
machine.run(); assert not machine.failed and machine.value("gpu_up") == 1, machine.failed
machine.driver.emit(0, 31); machine.run()
shutil.move(sys.argv[3], Path(sys.argv[2]) / "libnvidia-ml.so.1")
machine.driver.state.generation = 2
machine.driver.state.driver = b"600.10.01"
machine.run()
print(sorted(machine.failed)[:1], machine.value("gpu_up", 3), machine.series("nvml_reloads_total")[()])
machine.run()
print(machine.failed, machine.value("gpu_xid_total", 0, "app", "31"))
print([line for line in machine.page("gpu_info").splitlines() if 'gpu="7"' in line])
machine.driver.emit(5, 79); machine.run()
print(machine.value("gpu_xid_total", 5, "fatal", "79"))
"""
    lines = outside(tmp_path, script, str(new / "libnvidia-ml.so.1")).splitlines()
    # One topic runs into it; the next one already speaks with the new driver.
    assert lines[0] == "['clocks'] 1.0 1.0"
    assert lines[1] == "{} 1.0"  # our own counts outlast the driver
    assert 'driver_version="600.10.01"' in lines[2]
    assert lines[3] == "1.0"  # events are registered anew


def test_a_function_an_old_driver_lacks_costs_only_what_it_gives(tmp_path):
    build(tmp_path, without=["TEMPERATURE_V"])
    script = """
machine.run()
print(machine.failed, machine.value("gpu_temperature_celsius"), machine.series("nvml_function_missing"))
"""
    assert outside(tmp_path, script) == "{} 52.0 {('nvmlDeviceGetTemperatureV',): 1.0}\n"


def test_a_binding_with_other_private_names_asks_for_a_restart(driver: Driver, tmp_path, monkeypatch):
    told: list[str] = []
    machine = Machine(driver, tmp_path)
    machine.start(on_restart=told.append)
    machine.run()
    monkeypatch.setattr(nvml, "_PRIVATE", ("a_name_that_is_gone",))
    driver.rule("nvmlDeviceGetPowerUsage", code=18)
    machine.run()
    machine.run()
    assert machine.series("nvml_restart_needed") == {(): 1.0}
    assert machine.series("gpu_visible") == {(): 0.0}
    assert len(told) == 1
    assert "restart the exporter" in told[0]


def test_unloading_leaves_nothing_of_the_old_library_in_the_binding(driver, monkeypatch):
    del driver
    # The new library may be mapped where the old one was: old pointers would work by luck.
    closed: list[int] = []
    library = Library()
    library.open()
    handle = pynvml.nvmlLib._handle
    library.close()
    monkeypatch.setattr(_ctypes, "dlclose", closed.append)
    nvml._unload()
    assert closed == [handle]
    assert pynvml.nvmlLib is None
    assert pynvml._nvmlGetFunctionPointer_cache == {}
    assert pynvml._nvmlLib_refcount == 0


def test_the_private_names_are_still_there():
    # Fails on the nvidia-ml-py release that renames them, before a driver update in the field does.
    assert [name for name in nvml._PRIVATE if not hasattr(pynvml, name)] == []
