"""The door to NVIDIA's management library: the only module that imports pynvml.

Every call is timed and its error code turned into one of a few exceptions, so that collectors speak
of *unsupported*, *lost* and *replaced under us* and never of numbers. The facts about field ids, value
types and reloading are those of nvidia-ml-py 13.615.71 and nvml.h.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import math
import struct
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml  # type: ignore[import-untyped,import-not-found,unused-ignore]

from diag_exporter.families import Histogram

__all__ = [
    "CallStatistics",
    "FieldAnswers",
    "FunctionMissing",
    "Library",
    "Lost",
    "NoAnswer",
    "NotFound",
    "NvmlError",
    "Replaced",
    "ResetRequired",
    "RestartNeeded",
    "Unavailable",
    "Unsupported",
    "decode_fields",
    "error_name",
    "handle_address",
    "throttle_fields",
]

_NO_DRIVER = ": is the NVIDIA driver installed, and visible in this container?"
_ADVICE = {9: _NO_DRIVER, 12: _NO_DRIVER, 18: ": the driver's library will be loaded anew"}


class NvmlError(Exception):
    """A call that gave no value: ``code`` as in nvml.h, ``call`` the function."""

    def __init__(self, call: str, code: int) -> None:
        self.call = call
        self.code = code
        advice = _ADVICE.get(code, "")
        super().__init__(f"{call}: {error_name(code).replace('_', ' ')} (NVML code {code}){advice}")


class Unsupported(NvmlError):
    """This card, driver or mode does not know the reading; it will not know it in a second either."""


class FunctionMissing(Unsupported):
    """The driver's library (or the binding) is too old and has no such function (code 13)."""


class NotFound(NvmlError):
    """There is nothing to list or no sample since the last one (codes 6 and 21)."""


class NoAnswer(NvmlError):
    """A failure that may pass: time-out, busy, unknown error."""


class Lost(NvmlError):
    """The GPU fell off the bus (code 15) or is not there any more (28)."""


class ResetRequired(NvmlError):
    """The GPU is there and refuses to work until it is reset (code 16)."""


class Replaced(NvmlError):
    """The driver was replaced under us (18) or forgot us (1): the library must be loaded anew."""


class Unavailable(NvmlError):
    """There is no driver (9) or no library (12)."""


class RestartNeeded(Exception):
    """The library cannot be loaded anew inside this process: a supervisor must start it again."""


_NAMES = {
    1: "uninitialized", 2: "invalid_argument", 3: "not_supported", 4: "no_permission", 6: "not_found",
    7: "insufficient_size", 9: "driver_not_loaded", 10: "timeout", 11: "irq_issue", 12: "library_not_found",
    13: "function_not_found", 14: "corrupted_inforom", 15: "gpu_is_lost", 16: "reset_required",
    17: "operating_system", 18: "driver_replaced", 19: "in_use", 20: "memory", 21: "no_data",
    23: "insufficient_resources", 25: "struct_version", 26: "deprecated", 27: "not_ready",
    28: "gpu_not_found", 29: "invalid_state", 999: "unknown",
}  # fmt: skip
# No permission is final too: the exporter does not change user while it runs.
_KINDS: dict[int, type[NvmlError]] = {
    1: Replaced, 2: Unsupported, 3: Unsupported, 4: Unsupported, 6: NotFound, 9: Unavailable, 12: Unavailable,
    13: FunctionMissing, 15: Lost, 16: ResetRequired, 18: Replaced, 21: NotFound, 25: Unsupported,
    26: Unsupported, 28: Lost,
}  # fmt: skip


def error_name(code: int) -> str:
    """A short name of an NVML code, for a label; unknown codes share ``other``."""
    return _NAMES.get(code, "other")


# nvmlFieldValue_t: id, scope, timestamp µs, latency µs, value type, return code, value.
_FIELD = struct.Struct("=IIqqII8s")
# valueType -> how the eight bytes of the union are read; the small types use the first bytes.
_VALUES = tuple(struct.Struct("<" + code) for code in ("d", "I", "Q", "Q", "q", "i", "H"))
_BLANK = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True)
class FieldAnswers:
    """Numbers by field id in the driver's units, and the ids this GPU does not know."""

    values: dict[int, float]
    refused: frozenset[int]


def decode_fields(raw: bytes, call: str = "nvmlDeviceGetFieldValues") -> FieldAnswers:
    """Each entry by its own return code and value type; blanks (all ones, NaN) are no values."""
    values: dict[int, float] = {}
    refused: set[int] = set()
    for identity, _scope, _time, _latency, kind, code, union in _FIELD.iter_unpack(raw):
        if code:
            error = _KINDS.get(code, NoAnswer)
            if error in (Lost, ResetRequired, Replaced):
                raise error(call, code)
            if issubclass(error, Unsupported):
                refused.add(identity)
            continue
        if kind >= len(_VALUES):
            refused.add(identity)
            continue
        reader = _VALUES[kind]
        value = reader.unpack_from(union)[0]
        if value not in _BLANK[reader.size // 4 - 1 :] and math.isfinite(value):
            values[identity] = float(value)
    return FieldAnswers(values, frozenset(refused))


def throttle_fields(driver: str) -> dict[str, tuple[int, ...]]:
    """Field ids of accumulated throttle time (ns) by reason, the preferred one first.

    74 to 76 never moved. Software thermal, hardware thermal and power brake are 251 to 253 in drivers
    575 to 580.65 and 269 to 271 since 580.82, where the old ids mean power-smoothing settings: plausible
    wrong numbers. Between the two nobody has looked, and before 575 there are none: nothing is asked.
    """
    stable: dict[str, tuple[int, ...]] = {"sw_power_cap": (74,), "sw_thermal": (75,), "sync_boost": (76,)}
    try:
        version = tuple(int(part) for part in driver.split(".")[:2])
    except ValueError:
        return stable
    if version >= (580, 82):
        first = 269
    elif (575,) <= version < (580, 66):
        first = 251
    else:
        return stable
    return {**stable, "sw_thermal": (first, 75), "hw_thermal": (first + 1,), "hw_power_brake": (first + 2,)}


_BOUNDS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class CallStatistics:
    """What the driver was asked and how long it took; written by one thread."""

    def __init__(self) -> None:
        self.calls: dict[str, list[float]] = {}  # function -> [count, seconds]
        self.errors: dict[str, int] = {}  # error name -> count, without unsupported and not found
        self.missing: set[str] = set()  # functions that the driver's library does not have
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def add(self, function: str, seconds: float) -> None:
        entry = self.calls.get(function)
        if entry is None:
            entry = self.calls[function] = [0.0, 0.0]
        entry[0] += 1
        entry[1] += seconds
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def histogram(self) -> Histogram:
        """Durations of all calls since the start (seconds)."""
        return Histogram(_BOUNDS, tuple(self._counts), self._seconds)


class Library:
    """NVML, opened. One thread calls it; ``in_flight`` may be read by any other."""

    def __init__(self, timer: Callable[[], float] = time.perf_counter) -> None:
        self.statistics = CallStatistics()
        self.driver = ""
        self.opened = False
        self.reloads = 0
        self._timer = timer
        self._in_flight: tuple[str, float] | None = None

    def open(self) -> None:
        """Initialise once; ``Unavailable`` without a driver."""
        self.call("nvmlInit")
        self.opened = True
        # Since the library knows its functions afresh, so must we.
        self.statistics.missing.clear()
        self.driver = "unknown"
        with contextlib.suppress(Unsupported, NoAnswer):
            self.driver = str(self.call("nvmlSystemGetDriverVersion"))

    def close(self) -> None:
        """Leave the driver in peace. A failure is of no interest: we are going."""
        if not self.opened:
            return
        self.opened = False
        with contextlib.suppress(NvmlError):
            self.call("nvmlShutdown")

    def reopen(self, *, unload: bool) -> None:
        """Initialise anew; with ``unload`` from the library that is now on disk.

        Shutting down and initialising again keeps the old library mapped, and the old one will never
        match a new driver, so it has to be unmapped first.
        """
        self.close()
        if unload:
            _unload()
            self.reloads += 1
        self.open()

    def call(self, function: str, *arguments: Any) -> Any:
        """Call one binding function by name; what it raises is one of the exceptions above."""
        target = getattr(pynvml, function, None)
        if target is None:
            self.statistics.missing.add(function)
            raise FunctionMissing(function, 13)
        started = self._timer()
        self._in_flight = (function, started)
        try:
            return target(*arguments)
        except pynvml.NVMLError as error:
            raise self._translated(function, int(error.value)) from None
        finally:
            self.statistics.add(function, self._timer() - started)
            self._in_flight = None

    def fields(self, handle: object, ids: Sequence[int]) -> FieldAnswers:
        """Many field values in one driver call."""
        answers = self.call("nvmlDeviceGetFieldValues", handle, ids)
        return decode_fields(bytes(answers))

    def process_utilization(self, handle: object, since: int) -> list[tuple[int, int, int]]:
        """Samples (pid, time µs, SM %) later than ``since`` (µs of the wall clock)."""
        try:
            samples = self.call("nvmlDeviceGetProcessUtilization", handle, since)
        except NotFound:
            return []
        except NvmlError as error:
            # The binding takes a sizing call that succeeds, so nothing to list, for an error.
            if error.code == 0:
                return []
            raise
        return [(int(one.pid), int(one.timeStamp), int(one.smUtil)) for one in samples]

    def in_flight(self) -> tuple[str, float] | None:
        """The call the driver has not answered yet and for how many seconds; None: none."""
        current = self._in_flight
        return None if current is None else (current[0], self._timer() - current[1])

    def _translated(self, function: str, code: int) -> NvmlError:
        kind = _KINDS.get(code, NoAnswer)
        if kind is FunctionMissing:
            self.statistics.missing.add(function)
        elif code and not issubclass(kind, Unsupported | NotFound) and not _idle_wait(function, code):
            name = error_name(code)
            self.statistics.errors[name] = self.statistics.errors.get(name, 0) + 1
        return kind(function, code)


def _idle_wait(function: str, code: int) -> bool:
    # Waiting for events times out whenever nothing happened: that is the good case.
    return code == 10 and function.startswith("nvmlEventSetWait")


def handle_address(handle: object) -> int:
    """A device handle as a number, to recognise the GPU that an event names."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


_PRIVATE = ("nvmlLib", "_nvmlGetFunctionPointer_cache", "_nvmlLib_refcount")


def _unload() -> None:
    """Unmap the library and make the binding forget it. These names are private to the binding."""
    absent = [name for name in _PRIVATE if not hasattr(pynvml, name)]
    if absent or not hasattr(_ctypes, "dlclose"):
        raise RestartNeeded(
            "the driver was replaced, and this nvidia-ml-py cannot load its library anew"
            f" ({', '.join(absent) or 'no dlclose'}): restart the exporter"
        )
    mapped = pynvml.nvmlLib
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlLib = None
    pynvml._nvmlLib_refcount = 0
    if mapped is not None:
        _ctypes.dlclose(mapped._handle)
