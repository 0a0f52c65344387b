"""The incidents that boards are shown with, each in hours of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dashboards.src.pictures.asking import Span
from dashboards.src.pictures.sessions import session_series
from diag.accuracy.corpus import make
from diag.signals.frame import RawSeries
from diag.simulate.parts import Bundle, read

__all__ = ["STAGES", "Stage", "Staged", "staged"]

_SEVERITY = 0.85
_EPOCH = 1_800_000_000.0
_APART_SECONDS = 6 * 3600.0  # whatever looks an hour back stays within its own incident
_RECORDINGS = Path("tests/incidents")


@dataclass(frozen=True, slots=True)
class Stage:
    """One incident by name. ``kind`` is ``recorded`` (a real engine) or ``simulated``; ``text`` says what
    it is; ``make`` builds its bundle from the checkout's root."""

    name: str
    kind: str
    text: str
    make: Callable[[Path], Bundle]


@dataclass(frozen=True, slots=True)
class Staged:
    """A stage with its samples at their place in time: window and the label's onset in unix
    seconds, scrape interval in seconds."""

    stage: Stage
    start: float
    end: float
    onset: float | None
    scrape: float
    series: tuple[RawSeries, ...]

    def span(self, points: int = 160) -> Span:
        """The whole incident in about ``points`` steps, none shorter than a scrape."""
        step = max((self.end - self.start) / points, self.scrape)
        return Span(self.start, self.end, step, self.scrape)


def _recorded(name: str, text: str) -> Stage:
    def build(root: Path) -> Bundle:
        folder = root / _RECORDINGS / name
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        return read(files, name)

    return Stage(name, "recorded", text, build)


def _simulated(name: str, scenario: str, seed: int, text: str) -> Stage:
    def build(root: Path) -> Bundle:  # noqa: ARG001  every stage is built from the root
        return make("develop", scenario, seed, severity=_SEVERITY).bundle

    return Stage(name, "simulated", text, build)


_ALL = (
    _recorded("load_burst", "vLLM 0.32 on a CPU, seven times the request rate"),
    _recorded("kv_cache_exhaustion", "vLLM 0.32 on a CPU, restarted with 66 instead of 8,800 KV blocks"),
    _simulated(
        "context_growth", "context_growth", 6,
        "vLLM replicas, diag-exporter and node_exporter; old sessions resend an ever longer history",
    ),
    _simulated(
        "thermal_throttle", "thermal_throttle", 0,
        "four vLLM replicas on eight cards, diag-exporter; the cooling of one card fails",
    ),
    _simulated(
        "fabric_flap", "fabric_flap", 0,
        "vLLM replicas that move KV over InfiniBand, a Mooncake store; a host's links flap",
    ),
    _simulated(
        "tenant_dominance", "tenant_dominance", 0,
        "four vLLM replicas, four tenants; one of them takes most of the service",
    ),
    _simulated("sglang", "context_growth", 13, "SGLang replicas and diag-exporter; histories grow"),
    _simulated("dcgm", "thermal_throttle", 5, "vLLM replicas and dcgm-exporter; a card gets hot"),
    _simulated("nvidia_smi", "noisy_neighbour", 1, "vLLM and nvidia_gpu_exporter; a neighbour on a card"),
)  # fmt: skip

STAGES: dict[str, Stage] = {stage.name: stage for stage in _ALL}
"""Every stage by name, in the order of time in which the store holds them."""


def staged(
    root: Path, names: Iterable[str] = STAGES, wanted: frozenset[str] | None = None, instances: int = 1000
) -> list[Staged]:
    """The stages ``names`` as samples, moved to where each has its own time; ``wanted`` are the metric names
    to keep (all without), ``instances`` how many targets of each job."""
    chosen = set(names)
    found = []
    for place, stage in enumerate(STAGES.values()):
        if stage.name in chosen:
            found.append(_placed(stage, stage.make(root), _EPOCH + place * _APART_SECONDS, wanted))
    return [replace(one, series=_of_few(one.series, instances)) for one in found]


def _of_few(series: tuple[RawSeries, ...], instances: int) -> tuple[RawSeries, ...]:
    """The series of the first few targets of each job."""
    targets: dict[str, set[str]] = {}
    for one in series:
        targets.setdefault(one.labels["job"], set()).add(one.labels["instance"])
    kept = {(job, name) for job, names in targets.items() for name in sorted(names)[:instances]}
    return tuple(one for one in series if (one.labels["job"], one.labels["instance"]) in kept)


def _is_time(series: RawSeries) -> bool:
    """Whether the values themselves are moments."""
    return series.labels["__name__"].endswith(("start_time_seconds", "timestamp_seconds"))


def _placed(stage: Stage, bundle: Bundle, start: float, wanted: frozenset[str] | None) -> Staged:
    shift = start - bundle.window.start
    onset = bundle.label.get("onset")
    series = [*bundle.series(), *session_series(bundle)]
    kept = tuple(
        RawSeries(one.labels, one.times + shift, one.values + (shift if _is_time(one) else 0.0))
        for one in series
        if wanted is None or one.labels["__name__"] in wanted
    )
    end, scrape = bundle.window.end + shift, float(bundle.meta["step_seconds"])
    return Staged(stage, start, end, None if onset is None else onset + shift, scrape, kept)
