"""The stand-in driver from Python: builds it, maps its state, edits it while it runs."""

from __future__ import annotations

import ctypes
import mmap
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["SOURCE", "Driver", "State", "build"]

SOURCE = Path(__file__).parent / "nvml" / "standin.c"

_u32, _u64, _i32 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32


class Field(ctypes.Structure):
    _fields_ = [("id", _u32), ("type", _u32), ("code", _u32), ("pad", _u32), ("bits", ctypes.c_char * 8)]


class Process(ctypes.Structure):
    _fields_ = [("pid", _u32), ("sm", _u32), ("memory", _u64), ("sampled", _u64)]


class MigDevice(ctypes.Structure):
    _fields_ = [("gi", _u32), ("ci", _u32), ("total", _u64), ("used", _u64)]


class GpuState(ctypes.Structure):
    _fields_ = [
        ("uuid", ctypes.c_char * 80), ("name", ctypes.c_char * 96), ("bus", ctypes.c_char * 32),
        ("code", _u32), ("persistence", _u32),
        ("sm", _u32), ("sm_max", _u32), ("memory_clock", _u32), ("memory_clock_max", _u32),
        ("reasons", _u64), ("reasons_known", _u64),
        ("temperature", _i32), ("margin", _i32),
        ("threshold", _u32 * 3), ("power", _u32), ("limit", _u32), ("default_limit", _u32),
        ("energy", _u64),
        ("busy", _u32), ("memory_busy", _u32),
        ("total", _u64), ("used", _u64), ("free", _u64), ("reserved", _u64),
        ("ecc", (_u64 * 2) * 2),
        ("remap", _u32 * 4),
        ("width", _u32), ("width_max", _u32), ("generation", _u32), ("generation_max", _u32),
        ("replays", _u32),
        ("links", _u32), ("links_up", _u32),
        ("mig_on", _u32), ("migs", _u32),
        ("mig", MigDevice * 7),
        ("cpus", _u64 * 16), ("events", _u64),
        ("processes", _u32), ("fields", _u32),
        ("process", Process * 24),
        ("field", Field * 48),
    ]  # fmt: skip


class Rule(ctypes.Structure):
    _fields_ = [
        ("call", ctypes.c_char * 64), ("gpu", _i32), ("code", _u32), ("delay_us", _u32), ("pad", _u32),
    ]  # fmt: skip


class Event(ctypes.Structure):
    _fields_ = [("gpu", _u32), ("pad", _u32), ("type", _u64), ("data", _u64)]


class State(ctypes.Structure):
    _fields_ = [
        ("size", _u32), ("count", _u32), ("generation", _u32), ("rules", _u32), ("head", _u32),
        ("tail", _u32),
        ("calls", _u64),
        ("driver", ctypes.c_char * 80),
        ("rule", Rule * 32),
        ("event", Event * 64),
        ("gpu", GpuState * 8),
    ]  # fmt: skip


def build(folder: Path, *, generation: int = 1, without: Sequence[str] = ()) -> Path:
    """Compile the stand-in as ``folder/libnvidia-ml.so.1``."""
    library = folder / "libnvidia-ml.so.1"
    defines = [f"-DGENERATION={generation}", *(f"-DWITHOUT_{one}" for one in without)]
    command = ["cc", "-shared", "-fPIC", "-O1", *defines, "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True)
    return library


# How a value stands in the eight bytes of a field, by its valueType.
_CODES = "dIQQqiH"


class Driver:
    """The state, shared with the library; ``reset`` makes eight healthy, busy GPUs."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(ctypes.sizeof(State)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.state = State.from_buffer(self._map)
        self.reset()

    def reset(self) -> None:
        ctypes.memset(ctypes.addressof(self.state), 0, ctypes.sizeof(State))
        self.state.size = ctypes.sizeof(State)
        self.state.count = 8
        self.state.generation = 1
        self.state.driver = b"590.48.01"
        for index in range(8):
            self._healthy(index)

    def gpu(self, index: int) -> GpuState:
        found: GpuState = self.state.gpu[index]
        return found

    def _healthy(self, index: int) -> None:
        gpu = self.gpu(index)
        gpu.uuid = f"GPU-{index:08x}-0000-0000-0000-000000000000".encode()
        gpu.name = b"NVIDIA H200"
        gpu.bus = f"00000000:{0x10 + index:02X}:00.0".encode()
        gpu.persistence = 1
        gpu.sm, gpu.sm_max, gpu.memory_clock, gpu.memory_clock_max = 1980, 1980, 3201, 3201
        gpu.reasons_known = 511
        gpu.temperature, gpu.margin = 52, 35
        gpu.power, gpu.limit, gpu.default_limit, gpu.energy = 627_400, 700_000, 700_000, 5_000_000
        gpu.busy, gpu.memory_busy = 100, 7
        gpu.total, gpu.used, gpu.reserved = 150_754_820_096, 33_934_016_512, 643_825_664
        gpu.free = gpu.total - gpu.used - gpu.reserved
        gpu.width, gpu.width_max, gpu.generation, gpu.generation_max = 16, 16, 5, 5
        gpu.links, gpu.links_up = 18, (1 << 18) - 1
        gpu.cpus[0] = 0xFF if index < 4 else 0xFF00
        gpu.events = 0x8 | 0x2 | 0x400 | 0x800 | 0x4000 | 0x8000
        for identity in (74, 75, 76, 269, 270, 271, 38, 45, 52, 59):
            self.field(index, identity, 0)
        self.field(index, 82, 40, kind=1)
        self.field(index, 91, 18, kind=1)
        self.field(index, 230, 0, kind=1)

    def field(self, index: int, identity: int, value: float, *, kind: int = 3, code: int = 0) -> None:
        """Answer ``value`` for a field id, as the C type that ``kind`` names."""
        gpu = self.gpu(index)
        place = next((one for one in range(gpu.fields) if gpu.field[one].id == identity), gpu.fields)
        gpu.fields = max(gpu.fields, place + 1)
        number = value if kind == 0 else int(value)
        entry = gpu.field[place]
        entry.id, entry.type, entry.code = identity, kind, code
        bits = struct.pack("=" + _CODES[min(kind, len(_CODES) - 1)], number)
        # Through an address: a char array would stop at the first zero byte.
        ctypes.memset(ctypes.addressof(entry) + Field.bits.offset, 0, 8)
        ctypes.memmove(ctypes.addressof(entry) + Field.bits.offset, bits, len(bits))

    def no_field(self, index: int, identity: int) -> None:
        """This GPU no longer knows the field."""
        self.field(index, identity, 0, code=3)

    def run(self, index: int, pid: int, *, memory: int, sm: int = 0, sampled: int = 0) -> None:
        """Put a process on a GPU (``sampled`` in µs, 0: whenever it is asked)."""
        gpu = self.gpu(index)
        slot = gpu.process[gpu.processes]
        slot.pid, slot.memory, slot.sm, slot.sampled = pid, memory, sm, sampled
        gpu.processes += 1

    def rule(self, call: str, *, code: int = 0, delay: float = 0.0, gpu: int = -1) -> None:
        """Have a C function fail or take its time (seconds)."""
        slot = self.state.rule[self.state.rules]
        slot.call, slot.code, slot.gpu, slot.delay_us = call.encode(), code, gpu, int(delay * 1e6)
        self.state.rules += 1

    def no_rules(self) -> None:
        self.state.rules = 0

    def emit(self, index: int, data: int, kind: int = 0x8) -> None:
        """Put an event into the driver's queue."""
        slot = self.state.event[self.state.head % 64]
        slot.gpu, slot.type, slot.data = index, kind, data
        self.state.head += 1
