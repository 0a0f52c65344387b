"""A calm little service, made by hand, in which one thing at a time can be made to go wrong."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from diag.detectors.view import View
from diag.model import Assessment, Case, Event, Fact, Floats, Join, Series, Verdict, Window
from diag.records.record import build_frame
from diag.triage.compose import compose
from diag.triage.rank import judge
from diag.triage.run import look

START, STEP, POINTS, AT = 1_000_000.0, 5.0, 200, 120
GPU = {"gpu": "GPU-1", "node": "n0"}

CALM: Mapping[str, float] = {
    "ttft_seconds_mean": 0.2, "ttft_seconds_p50": 0.18, "ttft_seconds_p95": 0.3,
    "inter_token_seconds_mean": 0.02, "e2e_seconds_mean": 2.2, "queue_seconds_mean": 0.01,
    "prefill_seconds_mean": 0.15, "decode_seconds_mean": 2.0, "first_tokens_per_second": 0.5,
    "finished_requests_per_second": 0.5, "http_requests_per_second": 0.5,
    "prompt_tokens_per_second": 400.0, "prompt_tokens_per_request_mean": 800.0,
    "prompt_tokens_per_request_p50": 800.0, "prompt_tokens_per_request_p99": 1000.0,
    "output_tokens_per_request_mean": 100.0, "running_requests": 4.0, "waiting_requests": 0.0,
    "kv_cache_usage_ratio": 0.2, "preemptions_per_second": 0.0, "prefix_cache_hit_ratio": 0.6,
    "prefix_cache_query_tokens_per_second": 400.0, "engine_cpu_ratio": 0.5,
}  # fmt: skip


@dataclass(slots=True)
class World:
    """One engine ``e0`` on node ``n0`` with one GPU, 1,000 s at 5 s, trouble from second 600 on."""

    series: dict[tuple[str, str], Series] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    stalls: dict[str, tuple[Window, ...]] = field(default_factory=dict)

    onset: float = START + STEP * AT
    window: Window = Window(START, START + STEP * (POINTS - 1))  # noqa: RUF009

    @property
    def times(self) -> Floats:
        """The grid."""
        grid: Floats = START + STEP * np.arange(POINTS, dtype=np.float64)
        return grid

    def values(self, name: str, values: Floats, instance: str = "e0", **labels: str) -> None:
        """A series as it is given."""
        where = labels.get("gpu") or instance
        named = labels if "gpu" in labels or "node" in labels else {"instance": instance, **labels}
        self.series[name, where] = Series(name, named, self.times, values, "test")

    def goes(self, name: str, before: float, during: float, instance: str = "e0", **labels: str) -> None:
        """A series that steps at the onset, with two per cent of noise."""
        rng = np.random.default_rng(zlib.crc32(f"{name} {instance}".encode()))
        level = np.where(np.arange(POINTS) < AT, before, during)
        self.values(name, level * np.exp(rng.normal(0, 0.02, POINTS)), instance, **labels)

    def turns(self, **during: float) -> None:
        """Steps of signals of the calm service."""
        for name, value in during.items():
            self.goes(name, CALM[name], value)

    def clients(self, when: str = "both", every: float = 2.0, **fields: Any) -> None:
        """Usual requests before the onset, during the trouble, or both; ``fields`` override theirs,
        functions of the running number are called."""
        begin = self.onset if when == "during" else self.window.start
        end = self.onset if when == "before" else self.window.end
        for i in range(int((end - begin) / every)):
            row: dict[str, Any] = {
                "ts": begin + every * i, "session": f"{when}{i // 3}", "tenant": f"t{i % 3}",
                "instance": "e0",
                "prompt_tokens": 600 + 200 * (i % 3), "cached_tokens": 480, "output_tokens": 100,
                "ttft_seconds": 0.2 + 0.01 * (i % 5), "duration_seconds": 2.2, "status": "ok",
            }  # fmt: skip
            self.rows.append(row | {k: v(i) if callable(v) else v for k, v in fields.items()})

    def slow(self, seconds: float = 3.0, phase: str = "") -> None:
        """First tokens take long, in the metrics; ``phase`` carries the excess."""
        self.turns(ttft_seconds_mean=seconds, ttft_seconds_p50=seconds, ttft_seconds_p95=1.5 * seconds)
        if phase:
            self.turns(**{f"{phase}_seconds_mean": CALM[f"{phase}_seconds_mean"] + seconds - 0.2})

    def states(self, name: str, value: str, later: str = "") -> None:
        """A fact of the engine, and what it became at the onset."""
        self.facts.append(Fact(name, value, {"instance": "e0"}, "metrics", since=START))
        if later:
            self.facts.append(Fact(name, later, {"instance": "e0"}, "metrics", since=self.onset))

    def case(self) -> Case:
        """All of it."""
        named: dict[str, tuple[Series, ...]] = {}
        for (name, _), series in self.series.items():
            named[name] = (*named.get(name, ()), series)
        frame = None
        if self.rows:
            columns = {k: [row.get(k) for row in self.rows] for k in {k for row in self.rows for k in row}}
            frame, _ = build_frame(columns, len(self.rows))
        return Case(
            self.window, STEP, named, facts=tuple(self.facts), events=tuple(self.events),
            joins=(Join("e0", "n0", ("GPU-1",), "label"),), requests=frame, page_stalls=self.stalls,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Played:
    """A scene played on the calm service: what the rooms looked at, and what came of it."""

    world: World
    view: View
    verdict: Verdict

    def of(self, id: str) -> Assessment:
        """One hypothesis, judged among all."""
        (found,) = [one for one in self.verdict.assessments if one.id == id]
        return found


@pytest.fixture(scope="session")
def play() -> Callable[[Callable[[World], None]], Played]:
    """Play a scene on a fresh service in which nothing else is wrong; each scene once."""

    @cache
    def played(scene: Callable[[World], None]) -> Played:
        world = World()
        for name, value in CALM.items():
            world.goes(name, value, value)
        world.values("target_up", np.ones(POINTS))
        world.values("engine_start_time_seconds", np.full(POINTS, START - 9000.0))
        scene(world)
        view = look(world.case(), STEP)
        return Played(world, view, compose(view, judge(view), now=0.0, version=""))

    return played
