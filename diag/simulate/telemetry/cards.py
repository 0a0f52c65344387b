"""One card as sensors and driver tell of it, before an exporter gives it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from diag.model import Floats
from diag.simulate.gpu import H200
from diag.simulate.observed import Card, Run
from diag.simulate.plan import Gpu, Replica
from diag.simulate.telemetry.lives import lives_of, living

__all__ = ["NVLINKS", "Reading", "pci_of", "reading_of", "uuid_of"]

NVLINKS = 18
_CLOCK_STEP_MHZ = 15.0
_IDLE_UTILIZATION = 0.01
_DRIVER_BYTES = 640.0 * 2**20
_ENGINE_SHARE = 0.92  # vLLM's default of the memory it takes, whatever it needs
_LANES = 16.0
_GENERATION = 5.0

_Bools = NDArray[np.bool_]


def uuid_of(host: str, index: int) -> str:
    """The card's UUID without ``GPU-``; always the same for a place."""
    return f"{crc32(f'{host} {index}'.encode()):08x}-51d1-4000-8000-{index:012x}"


def pci_of(index: int) -> str:
    """The card's PCI address."""
    return f"00000000:{0x1B + 0x11 * index:02X}:00.0"


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Arrays of shape (n,). ``idle``, ``thermal``, ``power_cap``, ``brake``: whether the reason was active
    when sampled. ``own_bytes``: NaN while the engine does not run. ``lanes``, ``generation``, ``nvlinks``: in
    use; ``nvlinks`` is None for cards without. ``xid``: code of the last one, 0: none; ``xids``: (code,
    counter); ``ecc_errors``: uncorrectable ones in the window."""

    card: Card
    uuid: str
    utilization: Floats
    own_sm: Floats
    clock_mhz: Floats
    celsius: Floats
    memory_celsius: Floats
    own_bytes: Floats
    used_bytes: Floats
    idle: _Bools
    thermal: _Bools
    power_cap: _Bools
    brake: _Bools
    lanes: Floats
    generation: Floats
    nvlinks: Floats | None
    default_limit_watts: float
    xid: Floats
    xids: tuple[tuple[int, Floats], ...]
    ecc_errors: Floats
    far_ratio: Floats

    def row(self, name: str) -> Floats:
        """A row of the truth as it is."""
        return self.card.rows[name]


def reading_of(run: Run, card: Card) -> Reading:
    """What the driver of ``card`` tells at the scrapes of ``run``."""
    rng = np.random.default_rng([run.plan.seed, crc32(f"{card.host} {card.index}".encode())])
    acting = dict(run.plan.cards).get((card.host, card.index), Gpu())
    rows, times = card.rows, run.times
    utilization = np.clip(rows["utilization_ratio"], 0.0, 1.0)
    replica = next((one for one in run.plan.replicas if one.name == card.engine), None)
    # Engines over several cards speak NVLink, the others PCIe: that is the link that is narrow.
    spread = replica is not None and len(replica.gpus) > 1
    own_bytes = _own_bytes(run, replica)
    celsius = rows["celsius"]
    limit = float(rows["power_limit_watts"][0]) / max(acting.power_limit_ratio.at(0.0), 0.05)
    host = next(one for one in run.plan.hosts if one.name == card.host)
    return Reading(
        card=card,
        uuid=uuid_of(card.host, card.index),
        utilization=utilization,
        own_sm=np.clip(utilization - rows["foreign_sm_ratio"], 0.0, 1.0),
        clock_mhz=np.rint(rows["clock_ratio"] * H200.max_clock_mhz / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ,
        celsius=celsius,
        memory_celsius=np.maximum(celsius - 8.0, 20.0),
        own_bytes=own_bytes,
        used_bytes=_DRIVER_BYTES + np.nan_to_num(own_bytes) + rows["foreign_memory_bytes"],
        idle=utilization < _IDLE_UTILIZATION,
        thermal=_active(rows["thermal_seconds"], times, rng),
        power_cap=_active(rows["power_cap_seconds"], times, rng),
        brake=_active(rows["brake_seconds"], times, rng),
        lanes=np.full_like(celsius, _LANES) if spread else _lanes(rows["link_ratio"]),
        generation=np.where(utilization < _IDLE_UTILIZATION, 1.0, _GENERATION),
        nvlinks=np.rint(np.clip(rows["link_ratio"], 0.0, 1.0) * NVLINKS) if spread else None,
        default_limit_watts=limit,
        xid=_last_code(acting, times),
        xids=_codes(acting, times),
        ecc_errors=_counted(acting.uncorrectable_errors, times),
        far_ratio=host.far_ratio.over(times),
    )


def _own_bytes(run: Run, replica: Replica | None) -> Floats:
    row: Floats = np.full(run.times.shape, np.nan)
    if replica is not None:
        row[living(lives_of(run, replica), run.times)] = _ENGINE_SHARE * H200.memory_bytes
    return row


def _active(counter: Floats, times: Floats, rng: np.random.Generator) -> _Bools:
    """A reason is seen in as many samples as it held the clock of the time."""
    spans = np.maximum(np.diff(times, prepend=times[:1] - 1.0), 1e-9)
    share = np.diff(counter, prepend=counter[:1]) / spans
    seen: _Bools = rng.random(times.size) < share
    return seen


def _lanes(ratio: Floats) -> Floats:
    """PCIe lanes that are left: a power of two."""
    lanes: Floats = 2.0 ** np.rint(np.log2(np.clip(ratio, 1.0 / _LANES, 1.0) * _LANES))
    return lanes


def _counted(moments: Iterable[float], times: Floats) -> Floats:
    return np.searchsorted(np.sort(list(moments)), times, side="right").astype(np.float64)


def _last_code(acting: Gpu, times: Floats) -> Floats:
    last = np.zeros(times.shape)
    for time, code in sorted(acting.xids):
        last[times >= time] = code
    return last


def _codes(acting: Gpu, times: Floats) -> tuple[tuple[int, Floats], ...]:
    codes = sorted({code for _, code in acting.xids})
    return tuple(
        (code, _counted((time for time, other in acting.xids if other == code), times)) for code in codes
    )
