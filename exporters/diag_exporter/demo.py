"""Made-up GPUs: a script of what cards do, read by the real GPU collectors.

For machines without a GPU: ``make exporter-demo`` shows a page, and tests drive whole incidents. Only
the driver is made up; readings, ownership and throttle time take the paths they always take.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from diag_exporter.families import Collector
from diag_exporter.gpu import GpuOptions
from diag_exporter.gpu.collectors import build
from diag_exporter.gpu.fleet import Fleet
from diag_exporter.gpu.nvml import FieldAnswers, Library, NoAnswer, Unavailable, Unsupported, throttle_fields
from diag_exporter.settings import SettingsError

__all__ = ["Card", "Guest", "Script", "ScriptedLibrary", "collectors", "default_script", "read_script"]

_DRIVER = "580.95.05"
_MEMORY_TEMPERATURE = 82
_XID = 0x8


@dataclass(frozen=True, slots=True)
class Guest:
    """A process on a card while ``starts <= t < ends`` (seconds of the script)."""

    pid: int
    title: str
    memory_bytes: float
    sm: float
    starts: float = 0.0
    ends: float = 1e18


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU. ``times``: seconds of the script; each list has one value a time, which holds until the next.

    ``reasons``: NVML's clock event mask; ``held``: share of the time since the value before in which the
    reason held the clock down, by reason. ``xids``: (second, code).
    """

    uuid: str
    name: str
    bus: str
    times: tuple[float, ...]
    sm_mhz: tuple[float, ...]
    celsius: tuple[float, ...]
    watts: tuple[float, ...]
    busy: tuple[float, ...]
    reasons: tuple[int, ...]
    sm_max_mhz: float = 1980.0
    memory_mhz: float = 3201.0
    limit_watts: float = 700.0
    memory_bytes: float = 150_754_820_096.0
    held: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    guests: tuple[Guest, ...] = ()

    def __post_init__(self) -> None:
        lists = {name: getattr(self, name) for name in ("sm_mhz", "celsius", "watts", "busy", "reasons")}
        for name, values in {**lists, **self.held}.items():
            if len(values) != len(self.times):
                raise ValueError(f"{self.uuid}: {name} has {len(values)} values for {len(self.times)} times")
        if not self.times or list(self.times) != sorted(set(self.times)):
            raise ValueError(f"{self.uuid}: times must rise")


@dataclass(frozen=True, slots=True)
class Script:
    """``begins``: unix seconds of the script's second 0 (None: when it is first read). After ``period``
    seconds it begins anew (None: it stays at its end)."""

    cards: tuple[Card, ...]
    begins: float | None = None
    period: float | None = None


class ScriptedLibrary(Library):
    """Answers like a driver, from a script. What the script does not tell is unsupported."""

    def __init__(self, script: Script, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._script = script
        self._clock = clock
        self._begins = script.begins
        self._held = [_prefix(card) for card in script.cards]
        identities = throttle_fields(_DRIVER)
        self._reason_of = {ids[0]: reason for reason, ids in identities.items()}

    def seconds(self) -> float:
        """Seconds of the script, never less than 0."""
        now = self._clock()
        if self._begins is None:
            self._begins = now
        return max(now - self._begins, 0.0)

    def call(self, function: str, *arguments: Any) -> Any:
        """One binding function by name, timed as a real one is."""
        started = time.perf_counter()
        try:
            return self._answer(function, *arguments)
        finally:
            self.statistics.add(function, time.perf_counter() - started)

    def fields(self, handle: Any, ids: Sequence[int]) -> FieldAnswers:
        """Throttle times (ns) and the memory's temperature."""
        card, at = self._at(handle)
        values: dict[int, float] = {}
        for identity in ids:
            reason = self._reason_of.get(identity)
            if identity == _MEMORY_TEMPERATURE:
                values[identity] = max(card.celsius[at] - 8.0, 20.0)
            elif reason is not None and reason in card.held:
                values[identity] = self._held_seconds(handle, reason) * 1e9
        return FieldAnswers(values, frozenset(set(ids) - set(values)))

    def process_utilization(self, handle: Any, since: int) -> list[tuple[int, int, int]]:
        """One sample a process now, for those that were busy since."""
        now = int(self._clock() * 1e6)
        if now <= since:
            return []
        return [(one.pid, now, round(one.sm * 100)) for one in self._guests(handle) if one.sm > 0]

    def _answer(self, function: str, *arguments: Any) -> Any:
        system: dict[str, Callable[[], Any]] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: _DRIVER,
            "nvmlDeviceGetCount": lambda: len(self._script.cards),
            "nvmlDeviceGetHandleByIndex": lambda: arguments[0],
            "nvmlEventSetCreate": lambda: "events",
        }
        if function in system:
            return system[function]()
        if function.startswith("nvmlEventSetWait"):
            raise NoAnswer(function, 10)
        if not arguments or not isinstance(arguments[0], int):
            raise Unsupported(function, 3)
        card, at = self._at(arguments[0])
        reading = _READINGS.get(function)
        if reading is not None:
            return reading(card, at)
        match function, arguments[1:]:
            case "nvmlDeviceGetClockInfo", (kind,):
                return {1: card.sm_mhz[at], 2: card.memory_mhz}[kind]
            case "nvmlDeviceGetMaxClockInfo", (kind,):
                return {1: card.sm_max_mhz, 2: card.memory_mhz}[kind]
            case "nvmlDeviceGetTotalEnergyConsumption", _:
                return (
                    self.seconds() * 1e3 * card.watts[at] if len(card.times) == 1 else self._unknown(function)
                )
            case "nvmlDeviceGetTotalEccErrors", _:
                return 0
            case ("nvmlDeviceGetMemoryInfo", _):
                used = 640 * 2.0**20 + sum(one.memory_bytes for one in self._guests(arguments[0]))
                return SimpleNamespace(total=card.memory_bytes, used=used, reserved=640 * 2.0**20)
            case "nvmlDeviceGetComputeRunningProcesses", _:
                guests = self._guests(arguments[0])
                return [SimpleNamespace(pid=one.pid, usedGpuMemory=int(one.memory_bytes)) for one in guests]
        return self._unknown(function)

    def _unknown(self, function: str) -> Any:
        raise Unsupported(function, 3)

    def _at(self, index: int) -> tuple[Card, int]:
        if not 0 <= index < len(self._script.cards):
            raise Unavailable("scripted card", 9)
        card = self._script.cards[index]
        return card, max(bisect_right(card.times, self._place()) - 1, 0)

    def _place(self) -> float:
        seconds, period = self.seconds(), self._script.period
        return seconds if period is None else seconds % period

    def _guests(self, index: int) -> list[Guest]:
        place = self._place()
        return [one for one in self._script.cards[index].guests if one.starts <= place < one.ends]

    def _held_seconds(self, index: int, reason: str) -> float:
        """Since the script began; whole turns and the part of this one."""
        card, sums = self._script.cards[index], self._held[index][reason]
        period, seconds = self._script.period, self.seconds()
        turns, place = divmod(seconds, period) if period else (0.0, seconds)
        total = _held_until(card, reason, sums, place)
        return total + (turns * _held_until(card, reason, sums, period) if period else 0.0)


_READINGS: dict[str, Callable[[Card, int], Any]] = {
    "nvmlDeviceGetUUID": lambda card, _: card.uuid,
    "nvmlDeviceGetName": lambda card, _: card.name,
    "nvmlDeviceGetPciInfo": lambda card, _: SimpleNamespace(busId=card.bus),
    "nvmlDeviceGetPersistenceMode": lambda *_: 1,
    "nvmlDeviceGetTemperatureV": lambda card, at: round(card.celsius[at]),
    "nvmlDeviceGetPowerUsage": lambda card, at: card.watts[at] * 1e3,
    "nvmlDeviceGetEnforcedPowerLimit": lambda card, _: card.limit_watts * 1e3,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda card, _: card.limit_watts * 1e3,
    "nvmlDeviceGetUtilizationRates": lambda card, at: SimpleNamespace(
        gpu=round(card.busy[at] * 100), memory=round(card.busy[at] * 35)
    ),
    "nvmlDeviceGetSupportedClocksEventReasons": lambda *_: 0x1FF,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda card, at: card.reasons[at],
    "nvmlDeviceGetCurrPcieLinkWidth": lambda *_: 16,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda *_: 16,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda *_: 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda *_: 5,
    "nvmlDeviceGetPcieReplayCounter": lambda *_: 0,
    "nvmlDeviceGetSupportedEventTypes": lambda *_: _XID,
    "nvmlDeviceRegisterEvents": lambda *_: None,
}


def _prefix(card: Card) -> dict[str, list[float]]:
    """Held seconds before each time, by reason."""
    spans = [0.0, *(later - before for before, later in zip(card.times, card.times[1:], strict=False))]
    return {
        reason: list(accumulate(share * span for share, span in zip(shares, spans, strict=True)))
        for reason, shares in card.held.items()
    }


def _held_until(card: Card, reason: str, sums: Sequence[float], place: float) -> float:
    at = bisect_right(card.times, place) - 1
    if at < 0:
        return 0.0
    last = at + 1 == len(card.times)
    share = 0.0 if last else card.held[reason][at + 1]
    return sums[at] + share * (place - card.times[at])


def read_script(path: Path) -> Script:
    """A script from JSON. Raise ``SettingsError`` with one line."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        cards = tuple(_card(one) for one in known["cards"])
        return Script(cards, known.get("begins"), known.get("period"))
    except OSError as error:
        raise SettingsError(f"script {path} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise SettingsError(f"script {path}: {error} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"script {path}: {error}") from None


def _card(known: Mapping[str, Any]) -> Card:
    lists = {
        name: tuple(value) for name, value in known.items() if isinstance(value, list) and name != "guests"
    }
    held = {reason: tuple(shares) for reason, shares in known.get("held", {}).items()}
    guests = tuple(Guest(**one) for one in known.get("guests", ()))
    return Card(**{**known, **lists, "held": held, "guests": guests})


def default_script() -> Script:
    """Ten minutes, over and over: card 0 runs hot from the third to the sixth, and card 1 is shared."""
    times = tuple(float(second) for second in range(0, 600, 5))
    heat = [min(max((second - 180) / 60, 0.0), 1.0) if second < 360 else 0.0 for second in times]
    hot = Card(
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        name="NVIDIA H200 (made up)",
        bus="00000000:1B:00.0",
        times=times,
        sm_mhz=tuple(1980.0 - 15.0 * round(50 * one) for one in heat),
        celsius=tuple(62.0 + 25.0 * one for one in heat),
        watts=tuple(620.0 - 260.0 * one for one in heat),
        busy=tuple(0.97 for _ in times),
        reasons=tuple(0x20 if one > 0.2 else 0x0 for one in heat),
        held={**_never(len(times)), "sw_thermal": tuple(float(one > 0.2) for one in heat)},
        guests=(Guest(1093, "VLLM::EngineCore", 120e9, 0.9),),
    )
    spells = tuple(
        Guest(52210 + 61 * turn, "finetune_worker", 18e9, 0.45, 60.0 * turn, 60.0 * turn + 25.0)
        for turn in range(2, 9)
    )
    count = len(times)
    shared = Card(
        uuid="GPU-00000000-0000-0000-0000-000000000001",
        name="NVIDIA H200 (made up)",
        bus="00000000:43:00.0",
        times=times,
        sm_mhz=(1980.0,) * count,
        celsius=(58.0,) * count,
        watts=(560.0,) * count,
        busy=(0.95,) * count,
        reasons=(0x0,) * count,
        held=_never(count),
        guests=(Guest(1104, "VLLM::EngineCore", 120e9, 0.5), *spells),
    )
    return Script((hot, shared), period=600.0)


def _never(count: int) -> dict[str, tuple[float, ...]]:
    reasons = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake", "sync_boost")
    return dict.fromkeys(reasons, (0.0,) * count)


class _Closing:
    """The first collector, which takes the made-up /proc away when all is over."""

    def __init__(self, inner: Collector, folder: Path) -> None:
        self.name, self.group, self.families = inner.name, inner.group, inner.families
        self.collect = inner.collect
        self._folder = folder

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def collectors(path: Path | None) -> list[Collector]:
    """The GPU collectors on a script (None: the default one)."""
    script = default_script() if path is None else read_script(path)
    root = Path(tempfile.mkdtemp(prefix="diag-exporter-demo-"))
    for card in script.cards:
        for guest in card.guests:
            folder = root / "proc" / str(guest.pid)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(parents=True)
            (folder / "cmdline").write_text(guest.title + "\0")
            (folder / "stat").write_text(f"{guest.pid} ({guest.title}) S 1 1 1\n")
    fleet = Fleet(ScriptedLibrary(script))
    first, *others = build(fleet, GpuOptions(root=root))
    return [_Closing(first, root), *others]
