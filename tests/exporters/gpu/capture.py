"""Record what a real GPU answers: run by hand on a machine with one, never by the tests.

    python -m tests.exporters.gpu.capture --output capture.json [--seconds 20] [--cap 400]

Three phases: idle, under load, and with a second process beside the load. For each: p50, p99 and maximum
of every driver call, every row of the collectors, and the raw throttle fields under both numberings. The
load is a kernel of multiplications through the CUDA driver alone. ``--cap`` sets a power limit (watts)
during a fourth phase and puts the old one back; without it no setting is touched. UUIDs, bus
numbers and pids stay out of the file; names of processes are in it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diag_exporter.families import Collector, Histogram, NoData
from diag_exporter.gpu.collectors import build
from diag_exporter.gpu.fleet import Fleet
from diag_exporter.gpu.nvml import Library, NvmlError
from diag_exporter.gpu.options import GpuOptions

__all__ = ["main", "measure", "summary"]

_BURN = """
.version 6.4
.target sm_52
.address_size 64
.visible .entry burn(.param .u64 out, .param .u32 loops)
{
  .reg .f32 %f<5>; .reg .u32 %r<3>; .reg .pred %p<2>; .reg .u64 %d<3>;
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [loops];
  mov.u32 %r2, 0;
  mov.f32 %f1, 0f3F800001; mov.f32 %f2, 0f3F7FFFFE; mov.f32 %f3, 0f3F800002; mov.f32 %f4, 0f3F7FFFFD;
AGAIN:
  fma.rn.f32 %f1, %f1, %f2, %f3; fma.rn.f32 %f2, %f2, %f3, %f4;
  fma.rn.f32 %f3, %f3, %f4, %f1; fma.rn.f32 %f4, %f4, %f1, %f2;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, %r1;
  @%p1 bra AGAIN;
  cvta.to.global.u64 %d2, %d1;
  st.global.f32 [%d2], %f1;
  ret;
}
"""


def burn(seconds: float, size: int) -> None:
    """Keep GPU 0 busy, with ``size`` bytes of its memory allocated."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def ask(name: str, *arguments: Any) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise SystemExit(f"capture: {name} answers {code}")

    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    memory, device = ctypes.c_uint64(), ctypes.c_int()
    ask("cuInit", 0)
    ask("cuDeviceGet", ctypes.byref(device), 0)
    ask("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    ask("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    ask("cuModuleLoadData", ctypes.byref(module), _BURN.encode())
    ask("cuModuleGetFunction", ctypes.byref(kernel), module, b"burn")
    loops = ctypes.c_uint32(1 << 18)
    arguments = (ctypes.c_void_p * 2)(
        *(ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in (memory, loops))
    )
    print("ready", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ask("cuLaunchKernel", kernel, 4096, 1, 1, 256, 1, 1, 0, None, arguments, None)
        ask("cuCtxSynchronize")


class _TimedLibrary(Library):
    """Keeps the duration of every call."""

    def __init__(self) -> None:
        super().__init__()
        self.durations: dict[str, list[float]] = {}

    def call(self, function: str, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return super().call(function, *arguments)
        finally:
            self.durations.setdefault(function, []).append(time.perf_counter() - began)


def summary(durations: list[float]) -> dict[str, float]:
    """Count, and p50, p99 and maximum in seconds."""
    ordered = sorted(durations)
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        "p50": ordered[last // 2],
        "p99": ordered[round(last * 0.99)],
        "max": ordered[last],
    }


def _rows(collectors: list[Collector], fleet: Fleet) -> dict[str, list[Any]]:
    """One pass; labels without uuid and bus, families with pids left out."""
    found: dict[str, list[Any]] = {}
    for collector in collectors:
        try:
            rows = collector.collect(time.time())
        except NoData:
            continue
        except Exception as error:  # what a topic cannot do here is part of the record
            found[f"failed {collector.name}"] = [str(error)]
            continue
        families = {one.name: one for one in collector.families}
        secret = {one.uuid for one in fleet.known.values()} | {one.bus for one in fleet.known.values()}
        for name, entries in rows.items():
            if "pid" not in families[name].labels:
                found[name] = [
                    [[one for one in row.labels if one not in secret], row.value]
                    for row in entries
                    if not isinstance(row.value, Histogram)
                ]
    return found


def _fields(fleet: Fleet) -> dict[str, float]:
    """Raw throttle fields of GPU 0 under both numberings."""
    gpu = next(iter(fleet.known.values()))
    answers = fleet.library.fields(gpu.handle, [74, 75, 76, 251, 252, 253, 269, 270, 271])
    return {str(identity): value for identity, value in answers.values.items()}


def measure(seconds: float, library: Library | None = None) -> dict[str, Any]:
    """One phase: passes as fast as one a second for that long."""
    timed = library or _TimedLibrary()
    fleet = Fleet(timed)
    collectors = build(fleet, GpuOptions(profile="full"))
    end = time.monotonic() + seconds
    passes: list[float] = []
    rows: dict[str, list[Any]] = {}
    while not passes or time.monotonic() < end:
        began = time.perf_counter()
        rows = _rows(collectors, fleet)
        passes.append(time.perf_counter() - began)
        time.sleep(max(0.0, min(1.0, end - time.monotonic())))
    record: dict[str, Any] = {"driver": timed.driver, "pass": summary(passes), "rows": rows}
    if isinstance(timed, _TimedLibrary):
        record["calls"] = {name: summary(each) for name, each in sorted(timed.durations.items())}
    if fleet.known:
        record["throttle_fields"] = _fields(fleet)
    timed.close()
    return record


@contextmanager
def _load(seconds: float, size: int) -> Iterator[None]:
    command = [sys.executable, "-m", __spec__.name, "--burn", str(seconds), "--bytes", str(size)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise SystemExit("capture: the load did not start; its own message stands above")
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def _capped(watts: float) -> Iterator[None]:
    library = Library()
    library.open()
    handle = library.call("nvmlDeviceGetHandleByIndex", 0)
    before = library.call("nvmlDeviceGetPowerManagementLimit", handle)
    library.call("nvmlDeviceSetPowerManagementLimit", handle, int(watts * 1000))
    try:
        yield
    finally:
        library.call("nvmlDeviceSetPowerManagementLimit", handle, before)
        library.close()


def _phases(seconds: float, cap: float | None) -> dict[str, Any]:
    record: dict[str, Any] = {}

    def phase(name: str, work: Callable[[float], dict[str, Any]] = measure) -> None:
        print(f"capture: {name}, {seconds:g} s", file=sys.stderr)
        record[name] = work(seconds)

    phase("idle")
    with _load(4 * seconds + 60, 1 << 30):
        phase("load")
        with _load(2 * seconds + 60, 4 << 30):
            phase("second process")
        if cap is not None:
            with _capped(cap):
                phase("power cap")
    return record


def main(arguments: list[str] | None = None) -> int:
    """Write the capture; 1 with one line if there is no driver."""
    parser = argparse.ArgumentParser(description="Record what a real GPU answers.")
    parser.add_argument("--output", type=Path, default=Path("capture.json"))
    parser.add_argument("--seconds", type=float, default=20.0, help="per phase")
    parser.add_argument("--cap", type=float, help="watts; sets a power limit for a while (needs root)")
    parser.add_argument("--idle-only", action="store_true", help="start no load")
    parser.add_argument("--burn", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, default=1 << 30, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.burn is not None:
        burn(options.burn, options.bytes)
        return 0
    try:
        probe = Library()
        probe.open()
        probe.close()
        if options.idle_only:
            record = {"idle": measure(options.seconds)}
        else:
            record = _phases(options.seconds, options.cap)
    except NvmlError as error:
        print(f"capture: {error}", file=sys.stderr)
        return 1
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"capture: wrote {options.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
