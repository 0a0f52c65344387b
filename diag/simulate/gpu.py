"""A GPU as a few lines of physics: load makes power, power makes heat, heat lowers the clock.

Relations between clock, power and temperature are not drawn but follow from one loop, so that an
overlay cannot show a throttled clock on a cold card. Calibrated on two recorded pages of an
nvidia_gpu_exporter on an H200: idle 78 W at 28 °C; under full load 627 W, 1,980 MHz, 52 °C core and
40 °C memory with 35 °C left to the slow-down, which puts its threshold at 87 °C. Assumed, not
measured: power grows with clock to the power of 2.4, and the card's heat capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from diag.model import Floats

__all__ = ["H200", "Card", "Drive", "State", "Trace", "run"]

IDLE_BIT = 0x1
POWER_CAP_BIT = 0x4
HW_SLOWDOWN_BIT = 0x8
SW_THERMAL_BIT = 0x20
HW_THERMAL_BIT = 0x40
POWER_BRAKE_BIT = 0x80

_SUBSTEP_SECONDS = 0.25
_CLOCK_EXPONENT = 2.4
_BAND_KELVIN = 8.0  # the clock would be gone this far above where the slow-down begins


@dataclass(frozen=True, slots=True)
class Card:
    """What the loop needs to know about a model of GPU."""

    model: str
    max_clock_mhz: float
    clock_step_mhz: float
    memory_clock_mhz: float
    idle_watts: float
    full_watts: float
    limit_watts: float
    kelvin_per_watt: float
    joules_per_kelvin: float
    slowdown_celsius: float
    memory_bytes: float


H200 = Card(
    model="NVIDIA H200",
    max_clock_mhz=1980.0,
    clock_step_mhz=15.0,
    memory_clock_mhz=3201.0,
    idle_watts=78.0,
    full_watts=627.0,
    limit_watts=700.0,
    kelvin_per_watt=24.0 / 549.0,
    joules_per_kelvin=250.0,
    slowdown_celsius=87.0,
    memory_bytes=150_754_820_096.0,
)


@dataclass(frozen=True, slots=True, eq=False)
class Drive:
    """What acts on the card, one value a sample; all arrays of shape (n,).

    ``utilization``: 0 … 1 with every process. ``resistance``: thermal resistance as a multiple of the
    healthy card's. ``clock_cap_mhz``: what an outside power brake allows. ``air_celsius``: intake air.
    """

    times: Floats
    utilization: Floats
    resistance: Floats
    clock_cap_mhz: Floats
    air_celsius: float


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What the card then shows; all arrays of shape (n,).

    ``reasons``: NVML's clock event mask. The three ``*_seconds`` are since-boot totals of the time a
    reason held the clock down; ``energy_joules`` likewise.
    """

    times: Floats
    utilization: Floats
    clock_mhz: Floats
    power_watts: Floats
    celsius: Floats
    memory_celsius: Floats
    reasons: Floats
    power_cap_seconds: Floats
    thermal_seconds: Floats
    hardware_thermal_seconds: Floats
    power_brake_seconds: Floats
    energy_joules: Floats


class State:
    """The card between two samples. ``utilization``: 0 … 1 of a full load; ``celsius`` settles for it."""

    def __init__(self, card: Card, utilization: float, resistance: float, air_celsius: float) -> None:
        self.card = card
        self.clock = card.max_clock_mhz
        self.celsius = self.settled_celsius(utilization, resistance, air_celsius)
        self.thermal_seconds = 0.0
        self.hardware_thermal_seconds = 0.0
        self.power_cap_seconds = 0.0
        self.brake_seconds = 0.0
        self.joules = 0.0

    def watts(self, utilization: float) -> float:
        """Power at the present clock."""
        card = self.card
        clock_share: float = self.clock / card.max_clock_mhz
        dynamic: float = (card.full_watts - card.idle_watts) * utilization * clock_share**_CLOCK_EXPONENT
        return card.idle_watts + dynamic

    def settled_celsius(self, utilization: float, resistance: float, air: float) -> float:
        """Where the temperature would end at the present clock."""
        return air + self.watts(utilization) * self.card.kelvin_per_watt * resistance

    def advance(
        self,
        seconds: float,
        utilization: float,
        resistance: float,
        cap: float,
        air: float,
        limit_watts: float | None = None,
    ) -> None:
        """One substep: power, heat, then the governor's answer to it. ``cap``: the highest clock that an
        outside brake allows, MHz; ``limit_watts``: an enforced power limit, None for none that binds."""
        card, watts = self.card, self.watts(utilization)
        flow = watts - (self.celsius - air) / (card.kelvin_per_watt * resistance)
        self.celsius += seconds * flow / card.joules_per_kelvin
        powered = card.max_clock_mhz if limit_watts is None else self.powered_clock(utilization, limit_watts)
        self.clock = min(self._governed(), cap, powered)
        self._count(seconds, watts, cap, powered)

    def drift(
        self,
        seconds: float,
        utilization: float,
        resistance: float,
        cap: float,
        air: float,
        limit_watts: float,
    ) -> None:
        """Any span in one go, as long as heat limits nothing: see ``cool``."""
        card = self.card
        powered = self.powered_clock(utilization, limit_watts)
        self.clock = min(card.max_clock_mhz, cap, powered)
        settled = self.settled_celsius(utilization, resistance, air)
        span = card.kelvin_per_watt * resistance * card.joules_per_kelvin
        self.celsius = settled + (self.celsius - settled) * exp(-seconds / span)
        self._count(seconds, self.watts(utilization), cap, powered)

    def cool(self, utilization: float, resistance: float, air: float) -> bool:
        """Whether neither the present temperature nor the one under this load at full clock limits it."""
        card = self.card
        most = air + (card.idle_watts + (card.full_watts - card.idle_watts) * utilization) * (
            card.kelvin_per_watt * resistance
        )
        return max(self.celsius, most) < card.slowdown_celsius - 4.0

    def powered_clock(self, utilization: float, limit_watts: float) -> float:
        """The highest clock, MHz, that keeps this load within ``limit_watts``."""
        card = self.card
        need = (card.full_watts - card.idle_watts) * utilization
        left = max(limit_watts - card.idle_watts, 0.02 * card.limit_watts)
        ratio: float = 1.0 if need <= left else (left / need) ** (1.0 / _CLOCK_EXPONENT)
        return card.max_clock_mhz * ratio

    def _count(self, seconds: float, watts: float, cap: float, powered: float) -> None:
        card = self.card
        self.thermal_seconds += seconds * self.heat_limits(min(cap, powered))
        self.hardware_thermal_seconds += seconds * (self.celsius > card.slowdown_celsius)
        self.power_cap_seconds += seconds * (powered < min(cap, card.max_clock_mhz))
        self.brake_seconds += seconds * (cap < card.max_clock_mhz)
        self.joules += seconds * watts

    def _governed(self) -> float:
        """The software slow-down: from 4 K below the threshold the allowed clock falls evenly with
        temperature, and the clock follows it by at most two steps a substep."""
        card = self.card
        over = (self.celsius - (card.slowdown_celsius - 4.0)) / _BAND_KELVIN
        allowed = card.max_clock_mhz * (1.0 - min(max(over, 0.0), 0.8))
        most = 2.0 * card.clock_step_mhz
        return self.clock + min(max(allowed - self.clock, -most), most)

    def heat_limits(self, cap: float) -> bool:
        """Whether heat, and not ``cap``, holds the clock down."""
        hot = self.celsius > self.card.slowdown_celsius - 4.0
        return hot and self.clock < cap - 0.5 * self.card.clock_step_mhz

    def reasons(self, cap: float) -> int:
        """NVML's clock event mask."""
        mask = SW_THERMAL_BIT if self.heat_limits(cap) else 0
        if self.celsius > self.card.slowdown_celsius:
            mask |= HW_THERMAL_BIT | HW_SLOWDOWN_BIT
        if cap < self.card.max_clock_mhz:
            mask |= POWER_BRAKE_BIT | HW_SLOWDOWN_BIT
        return mask


def run(card: Card, drive: Drive, rng: np.random.Generator) -> Trace:
    """Let ``drive`` act on ``card``, with the jitter and the short power caps real pages show.

    One sample in seven reads a clock one step lower; under 2 % carry a power-cap bit that costs a step.
    """
    state = State(card, float(drive.utilization[0]), float(drive.resistance[0]), drive.air_celsius)
    rows, gap = [], float(np.median(np.diff(drive.times)))
    spans = np.diff(drive.times, prepend=drive.times[0] - gap)
    for index, span in enumerate(spans.tolist()):
        cap = float(drive.clock_cap_mhz[index])
        use, resistance = float(drive.utilization[index]), float(drive.resistance[index])
        substeps = max(round(span / _SUBSTEP_SECONDS), 1)
        for _ in range(substeps):
            state.advance(span / substeps, use, resistance, cap, drive.air_celsius)
        rows.append(_sample(state, use, cap))
    return _noisy(card, drive, np.array(rows, dtype=np.float64).T, rng)


def _sample(state: State, utilization: float, cap: float) -> tuple[float, ...]:
    return (
        state.clock,
        state.watts(utilization),
        state.celsius,
        float(state.reasons(cap)),
        state.thermal_seconds,
        state.hardware_thermal_seconds,
        state.brake_seconds,
        state.joules,
    )


def _noisy(card: Card, drive: Drive, rows: Floats, rng: np.random.Generator) -> Trace:
    clock, watts, celsius, reasons, thermal, hardware, brake, joules = rows
    count = clock.size
    capped = (rng.random(count) < 0.012) & (reasons == 0) & (drive.utilization > 0.5)
    jitter = (rng.random(count) < 1.0 / 7.0) | capped
    mask = reasons.astype(np.int64) | np.where(capped, POWER_CAP_BIT, 0)
    core = np.rint(celsius + rng.normal(0.0, 0.3, count))
    return Trace(
        times=drive.times,
        utilization=np.round(drive.utilization, 2),
        clock_mhz=np.rint((clock - jitter * card.clock_step_mhz) / card.clock_step_mhz) * card.clock_step_mhz,
        power_watts=np.round(np.minimum(watts + rng.normal(0.0, 6.0, count), card.limit_watts), 2),
        celsius=core,
        # Both pages give one memory reading: 32 °C beside 28 °C, 40 °C beside 52 °C.
        memory_celsius=np.rint(32.0 + (core - 28.0) / 3.0),
        reasons=mask.astype(np.float64),
        power_cap_seconds=np.cumsum(capped * 0.2),
        thermal_seconds=thermal,
        hardware_thermal_seconds=hardware,
        power_brake_seconds=brake,
        energy_joules=joules,
    )
