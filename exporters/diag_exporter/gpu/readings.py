"""What is read of one GPU, in base units. None is always: this card, driver or mode does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "Clocks",
    "Ecc",
    "Identity",
    "Mig",
    "MigInstance",
    "NvLink",
    "Pcie",
    "Power",
    "ProcessUse",
    "Remap",
    "Thermals",
    "Topology",
    "Usage",
]


@dataclass(frozen=True, slots=True)
class Identity:
    """``persistence``: whether the driver stays loaded without clients."""

    name: str
    driver: str
    bus: str
    persistence: bool | None


@dataclass(frozen=True, slots=True)
class Clocks:
    """Hertz. ``reasons``: 1 while a reason holds the clock (only reasons this GPU knows).
    ``seconds``: time it was held since the driver was loaded, by reason."""

    sm: float | None
    sm_max: float | None
    memory: float | None
    memory_max: float | None
    reasons: Mapping[str, bool] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Thermals:
    """Degrees Celsius. ``margin``: degrees left before the GPU slows down (may be negative)."""

    core: float | None
    memory: float | None
    margin: float | None
    slowdown: float | None
    shutdown: float | None
    memory_max: float | None


@dataclass(frozen=True, slots=True)
class Power:
    """Watts, and joules since the driver was loaded."""

    draw: float | None
    limit: float | None
    default_limit: float | None
    energy: float | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Ratios of time 0 to 1, and bytes."""

    busy: float | None
    memory_busy: float | None
    total: float | None
    used: float | None
    reserved: float | None


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One process on one GPU. ``owner``: own (serves), foreign, or unknown (another PID namespace).
    ``memory`` bytes; ``sm`` ratio of SM time since the last look."""

    pid: int
    name: str
    owner: str
    memory: float | None
    sm: float | None


@dataclass(frozen=True, slots=True)
class Ecc:
    """Error counts by (kind, lifetime): corrected or uncorrected; volatile (since the driver was loaded)
    or aggregate (in the card's memory). Retired pages by cause, for cards that retire pages."""

    errors: Mapping[tuple[str, str], float]
    retired: Mapping[str, float]
    retirement_pending: float | None


@dataclass(frozen=True, slots=True)
class Remap:
    """Remapped rows by cause; ``pending``: a reset is due; ``failure``: no spare row was left.
    ``action``: what the driver wants done (0 nothing, 1 reset, 2 reboot, …)."""

    rows: Mapping[str, float]
    pending: bool | None
    failure: bool | None
    action: float | None


@dataclass(frozen=True, slots=True)
class Pcie:
    """Lanes, generation, and counts since the driver was loaded; bytes moved in both directions."""

    width: float | None
    width_max: float | None
    generation: float | None
    generation_max: float | None
    replays: float | None
    errors: Mapping[str, float]
    sent: float | None
    received: float | None


@dataclass(frozen=True, slots=True)
class NvLink:
    """Links by number (True: active), and error counts over all links by kind."""

    links: Mapping[int, bool]
    errors: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG device: its GPU instance and compute instance, and bytes of memory."""

    gpu_instance: int
    compute_instance: int
    total: float | None
    used: float | None


@dataclass(frozen=True, slots=True)
class Mig:
    """Whether MIG is on, and the instances."""

    enabled: bool
    instances: tuple[MigInstance, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """``node``: the GPU's NUMA node. ``local``: share of the CPUs allowed to the serving process that
    are near the GPU, 0 to 1."""

    node: int | None
    local: float | None
