"""The incidents that the rules are replayed over: every recording, and simulated ones of every scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diag.accuracy.corpus import make
from diag.simulate import Bundle, load
from diag.simulate.scenarios import SCENARIOS
from tests.rules.replay import APART_SECONDS, EPOCH, raw_names
from tests.rules.rulefiles import CHECKOUT
from tests.rules.timeline import Timeline, stretched

__all__ = ["EVERY", "QUICK", "Incident", "timelines"]


@dataclass(frozen=True, slots=True)
class Incident:
    """A recording by its folder, or (with a seed) a simulated one by its scenario."""

    name: str
    seed: int | None = None

    @property
    def title(self) -> str:
        """What a table calls it."""
        return self.name if self.seed is None else f"{self.name} #{self.seed}"

    def bundle(self) -> Bundle:
        """It, in memory."""
        if self.seed is None:
            return load(CHECKOUT / "tests" / "incidents" / self.name)
        return make("develop", self.name, self.seed, severity=1.0).bundle

    def timeline(self, start: float) -> Timeline:
        """It, with what the rules read of it, from ``start`` on."""
        return stretched(self.bundle(), start, raw_names())


_RECORDED = tuple(
    Incident(path.parent.name) for path in sorted((CHECKOUT / "tests" / "incidents").glob("*/bundle.json"))
)
# Seed 10: two of vLLM with diag-exporter; 7: three, DCGM; 3: six of SGLang; 1: nvidia_gpu_exporter.
_SEED = 10
_HEALTHY = tuple(Incident(name, seed) for name in ("healthy", "healthy_change") for seed in (1, 3, 7, 10))
_SIMULATED = (
    *(Incident(name, _SEED) for name in SCENARIOS if name not in ("healthy", "healthy_change", "double")),
    *(Incident(name, 7) for name in ("thermal_throttle", "gpu_hardware_fault")),
    *(Incident(name, 3) for name in ("load_burst", "kv_cache_exhaustion")),
    Incident("power_cap", 1),
)

EVERY: tuple[Incident, ...] = (*_RECORDED, *_HEALTHY, *_SIMULATED)
"""What docs/alerts.md shows."""

QUICK: tuple[Incident, ...] = (
    Incident("context_growth_reference"),
    Incident("healthy_a"),
    Incident("kv_cache_exhaustion"),
    Incident("prefix_cache_broken"),
    Incident("healthy", 1),
)
"""What every run of the tests replays."""


def timelines(incidents: Sequence[Incident]) -> Iterator[Timeline]:
    """Theirs, days apart, in order."""
    for number, incident in enumerate(incidents):
        yield incident.timeline(EPOCH + number * APART_SECONDS)
