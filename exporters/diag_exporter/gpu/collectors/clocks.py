"""Clocks, what holds them down now, and for how long it has."""

from __future__ import annotations

from collections.abc import Mapping

from diag_exporter.families import Rows
from diag_exporter.gpu.collectors.topic import GpuCollector, Table, counter, gauge, scaled
from diag_exporter.gpu.fleet import Fleet, Gpu
from diag_exporter.gpu.nvml import throttle_fields
from diag_exporter.gpu.options import GpuOptions
from diag_exporter.gpu.readings import Clocks

__all__ = ["ClocksCollector", "HeldTime"]

# Bits of nvmlClocksEventReasons. Idle, app_clocks and display_clocks are harmless; sw_power_cap is normal
# under full load; hw_slowdown, hw_thermal and hw_power_brake never are.
_REASONS = {
    "idle": 0x1,
    "app_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
_SM, _MEMORY = 1, 2  # nvmlClockType_t
_HERTZ = 1e6  # the driver counts in MHz
_SECONDS = 1e-9  # and throttle time in ns
# The driver brings its times up to date every so often: a step may be that much longer than the pass.
_SLACK = 2.0


class HeldTime:
    """Throttle time as a counter that can be believed, for one GPU and reason.

    Field ids have moved between drivers, and under a foreign numbering a setting looks like a time. What
    grows faster than the clock on the wall is no time: such a step is left out and counted.
    """

    def __init__(self, field: int, seconds: float, now: float) -> None:
        self.field = field
        self.total = seconds
        self._last = seconds
        self._now = now

    def advance(self, seconds: float, now: float) -> bool:
        """Take a new reading; False if the step was refused. A smaller one is a driver that restarted."""
        step, passed = seconds - self._last, now - self._now
        self._last, self._now = seconds, now
        if step < 0:
            self.total = seconds
            return True
        # A wall clock that was set back says nothing about how long the step took.
        if passed >= 0 and step > passed + _SLACK:
            return False
        self.total += step
        return True


class ClocksCollector(GpuCollector[Clocks]):
    """Fast: throttling comes in spells of seconds."""

    name = "clocks"
    group = "fast"
    families = (
        gauge("sm_clock_hertz", "SM clock now", "nvmlDeviceGetClockInfo(SM)", "not told"),
        gauge("sm_clock_max_hertz", "Highest SM clock", "nvmlDeviceGetMaxClockInfo(SM)", "not told"),
        gauge("memory_clock_hertz", "Memory clock now", "nvmlDeviceGetClockInfo(MEM)", "not told"),
        gauge("memory_clock_max_hertz", "Highest memory clock", "nvmlDeviceGetMaxClockInfo(MEM)", "not told"),
        gauge(
            "clock_event_active",
            "1 while the reason holds the clock down",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "the GPU does not know this reason",
            "reason",
        ),
        counter(
            "clock_event_seconds",
            "Seconds the reason held the clock down since the driver was loaded",
            "field values 74 to 76, and 251 to 253 or 269 to 271 by driver version",
            "this driver keeps no time for this reason",
            "reason",
        ),
        counter(
            "clock_event_refused",
            "Steps of throttle time left out because they were longer than the time that passed",
            "as clock_event_seconds",
            "no throttle time is read",
        ),
    )

    def __init__(self, fleet: Fleet, options: GpuOptions) -> None:
        super().__init__(fleet, options)
        self._ids: Mapping[str, tuple[int, ...]] = {}
        self._generation = -1
        self._held: dict[tuple[str, str], HeldTime] = {}
        self._refused: dict[str, int] = {}

    def collect(self, now: float) -> Rows:
        self.fleet.prepare(now)
        if self._generation != self.fleet.generation:
            self._generation = self.fleet.generation
            self._ids = throttle_fields(self.fleet.library.driver)
            self._held.clear()
            self.fleet.want_fields(self.group, (one for ids in self._ids.values() for one in ids))
        return super().collect(now)

    def read(self, gpu: Gpu) -> Clocks:
        known = gpu.kept("reasons", lambda: gpu.ask("nvmlDeviceGetSupportedClocksEventReasons"))
        active = gpu.ask("nvmlDeviceGetCurrentClocksEventReasons")
        if active is None:  # what the call was named before driver 535
            active = gpu.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        reasons = {
            reason: bool(active & bit)
            for reason, bit in _REASONS.items()
            if active is not None and (known is None or known & bit)
        }
        return Clocks(
            sm=scaled(gpu.ask("nvmlDeviceGetClockInfo", _SM), _HERTZ),
            sm_max=scaled(self._highest(gpu, _SM), _HERTZ),
            memory=scaled(gpu.ask("nvmlDeviceGetClockInfo", _MEMORY), _HERTZ),
            memory_max=scaled(self._highest(gpu, _MEMORY), _HERTZ),
            reasons=reasons,
            seconds=self._seconds(gpu),
        )

    def _highest(self, gpu: Gpu, clock: int) -> float | None:
        found: float | None = gpu.kept(f"clock {clock}", lambda: gpu.ask("nvmlDeviceGetMaxClockInfo", clock))
        return found

    def _seconds(self, gpu: Gpu) -> dict[str, float]:
        values = self.fleet.fields(gpu, self.group)
        seconds: dict[str, float] = {}
        for reason, ids in self._ids.items():
            held = self._held.get((gpu.uuid, reason))
            # Once begun with a field, stay with it: another one counts from elsewhere.
            field = held.field if held else next((one for one in ids if one in values), None)
            if field is None or field not in values:
                continue
            value = values[field] * _SECONDS
            if held is None:
                held = self._held[gpu.uuid, reason] = HeldTime(field, value, gpu.now)
            elif not held.advance(value, gpu.now):
                self._refused[gpu.uuid] = self._refused.get(gpu.uuid, 0) + 1
            seconds[reason] = held.total
        return seconds

    def write(self, table: Table, gpu: Gpu, reading: Clocks) -> None:
        table.put("gpu_sm_clock_hertz", reading.sm, *gpu.labels)
        table.put("gpu_sm_clock_max_hertz", reading.sm_max, *gpu.labels)
        table.put("gpu_memory_clock_hertz", reading.memory, *gpu.labels)
        table.put("gpu_memory_clock_max_hertz", reading.memory_max, *gpu.labels)
        for reason, active in reading.reasons.items():
            table.put("gpu_clock_event_active", float(active), *gpu.labels, reason)
        for reason, seconds in reading.seconds.items():
            table.put("gpu_clock_event_seconds_total", seconds, *gpu.labels, reason)
        if reading.seconds:
            table.put("gpu_clock_event_refused_total", self._refused.get(gpu.uuid, 0), *gpu.labels)
