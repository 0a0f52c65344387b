"""Xids: what the driver reports when a GPU or a program on it goes wrong.

The driver keeps them in an event queue that is emptied in each pass; nothing from before the exporter's
start is in it. A counter that appears with its first event cannot be seen to grow, so known codes stand at
0 from the beginning, and the time of the last one is told beside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from diag_exporter.families import Rows
from diag_exporter.gpu.collectors.topic import GpuCollector, Table, counter, gauge
from diag_exporter.gpu.fleet import Fleet, Gpu
from diag_exporter.gpu.nvml import NoAnswer, NotFound, NvmlError, Unsupported, handle_address
from diag_exporter.gpu.options import GpuOptions

__all__ = ["XID_CLASSES", "XidCollector"]

# app: the program's own fault or its end; fatal: the GPU, its memory or its links need a reset or worse;
# other: worth a look, serving goes on. After NVIDIA's Xid catalogue, judged for a serving host.
_APP = (13, 31, 32, 43, 45, 68, 69, 137)
_FATAL = (38, 48, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 149, 155, 158)
_OTHER = (8, 63, 92, 94, 121, 123, 144, 145, 146, 147, 148, 150, 154, 156)
XID_CLASSES: Mapping[int, str] = {
    **dict.fromkeys(_APP, "app"),
    **dict.fromkeys(_FATAL, "fatal"),
    **dict.fromkeys(_OTHER, "other"),
}
# Codes with a series of their own. The rest share ``other`` within their class: every series is there
# before its first event, and a page does not carry a catalogue for each GPU.
_SHOWN = (13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140)
_HIGHEST = 999  # a code beyond any catalogue is a garbled event; its label must not be free

_XID = 0x8
_EVENTS = {
    "dram_retirement": 0x400,
    "dram_retirement_failure": 0x800,
    "gpu_unavailable": 0x4000,
    "recovery_action": 0x8000,
}
# Long enough for the driver to look at its queue, too short to matter.
_WAIT_MILLISECONDS = 1
_MOST_EVENTS = 256  # a pass: a storm must not hold up the others


def _series(code: int) -> tuple[str, str]:
    """Class and code label of an Xid."""
    return XID_CLASSES.get(code, "other"), str(code) if code in _SHOWN else "other"


_SERIES = (*map(_series, _SHOWN), ("app", "other"), ("fatal", "other"), ("other", "other"))


class XidCollector(GpuCollector[None]):
    """Counts live here and outlast driver reloads; the driver's queue does not."""

    name = "xid"
    group = "fast"
    families = (
        counter(
            "xid",
            "Xid events since the exporter's start, by code (rare codes: other); class fatal: the GPU needs"
            " a reset or worse, app: the program's fault, other",
            "event 0x8",
            "the driver reports no events (MIG, vGPU)",
            "class",
            "xid",
        ),
        gauge("xid_last_code", "Code of the last Xid, 0 if there was none", "event 0x8", "no events"),
        gauge(
            "xid_last_timestamp_seconds",
            "Unix time of the last Xid of this code",
            "event 0x8",
            "none since the exporter's start",
            "xid",
        ),
        counter(
            "event",
            "Other events of the driver since the exporter's start",
            "events 0x400, 0x800, 0x4000 and 0x8000",
            "this GPU does not report the event",
            "event",
        ),
    )

    def __init__(self, fleet: Fleet, options: GpuOptions) -> None:
        super().__init__(fleet, options)
        self._generation = -1
        self._queue: object | None = None
        self._masks: dict[str, int] = {}  # what is reported, by uuid
        self._counts: dict[str, dict[tuple[str, str], int]] = {}  # by uuid: (class, code)
        self._events: dict[str, dict[str, int]] = {}
        self._last: dict[str, dict[str, float]] = {}

    def collect(self, now: float) -> Rows:
        self.fleet.prepare(now)
        if self._generation != self.fleet.generation:
            # The old queue died with the old initialisation.
            self._queue = None
            self._masks.clear()
            self._generation = self.fleet.generation
            with contextlib.suppress(Unsupported):  # guests of some hypervisors have no events
                self._queue = self.fleet.library.call("nvmlEventSetCreate")
        registered = [gpu for gpu, _ in self.fleet.read(now, self.read)]
        self._drain(now)
        table = self.table()
        # A GPU that has just died has its most telling Xids yet to show: lost ones are written too.
        dead = [
            one for one in self.fleet.known.values() if one not in registered and one.uuid in self._counts
        ]
        for gpu in (*registered, *dead):
            self.write(table, gpu, None)
        return table.rows()

    def read(self, gpu: Gpu) -> None:
        if gpu.uuid in self._masks:
            return
        supported = gpu.ask("nvmlDeviceGetSupportedEventTypes")
        mask = 0 if self._queue is None else (supported or 0) & (_XID | sum(_EVENTS.values()))
        if mask:
            registered = gpu.attempt(("events",), self._register, gpu, mask)
            mask = mask if registered else 0
        self._masks[gpu.uuid] = mask
        if mask & _XID:
            self._counts.setdefault(gpu.uuid, dict.fromkeys(_SERIES, 0))
        for event, bit in _EVENTS.items():
            if mask & bit:
                self._events.setdefault(gpu.uuid, {}).setdefault(event, 0)

    def _register(self, gpu: Gpu, mask: int) -> bool:
        self.fleet.library.call("nvmlDeviceRegisterEvents", gpu.handle, mask, self._queue)
        return True

    def _drain(self, now: float) -> None:
        if not any(self._masks.values()):
            return
        for turn in range(_MOST_EVENTS):
            try:
                wait = 0 if turn else _WAIT_MILLISECONDS
                event = self.fleet.library.call("nvmlEventSetWait_v2", self._queue, wait)
            except (NoAnswer, NotFound, Unsupported):
                return  # nothing (more) happened
            except NvmlError:
                # A lost GPU may answer for all here; those that are up are told by the others.
                return
            self._note(event, now)

    def _note(self, event: object, now: float) -> None:
        address = handle_address(event.device)  # type: ignore[attr-defined]
        kind, data = int(event.eventType), int(event.eventData)  # type: ignore[attr-defined]
        uuid = next(
            (one.uuid for one in self.fleet.known.values() if handle_address(one.handle) == address), None
        )
        if uuid is None:
            return
        if kind & _XID:
            code = str(data) if 0 < data <= _HIGHEST else "unknown"
            self._counts.setdefault(uuid, dict.fromkeys(_SERIES, 0))[_series(data)] += 1
            self._last.setdefault(uuid, {})[code] = now
            # The last one stands last, for xid_last_code.
            self._last[uuid][code] = self._last[uuid].pop(code)
        for name, bit in _EVENTS.items():
            if kind & bit:
                events = self._events.setdefault(uuid, {})
                events[name] = events.get(name, 0) + 1

    def write(self, table: Table, gpu: Gpu, reading: None) -> None:
        del reading
        counts = self._counts.get(gpu.uuid)
        if counts is None:
            return
        for (kind, code), count in counts.items():
            table.put("gpu_xid_total", count, *gpu.labels, kind, code)
        last = self._last.get(gpu.uuid, {})
        codes = [int(code) for code in last if code.isdigit()]
        table.put("gpu_xid_last_code", codes[-1] if codes else 0, *gpu.labels)
        for code, when in last.items():
            table.put("gpu_xid_last_timestamp_seconds", when, *gpu.labels, code)
        for event, count in self._events.get(gpu.uuid, {}).items():
            table.put("gpu_event_total", count, *gpu.labels, event)
