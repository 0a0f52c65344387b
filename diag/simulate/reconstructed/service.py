"""The plain service that most posted incidents are set in: what the posters did not say is like this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from diag.model import Floats
from diag.simulate.profiles import Profile, constant
from diag.simulate.reconstructed.engine_pages import Page, sglang, vllm
from diag.simulate.reconstructed.flow import Flow, Traffic, flow
from diag.simulate.reconstructed.lines import vllm_line
from diag.simulate.reconstructed.machine_pages import Board, Host, dcgm, host
from diag.simulate.reconstructed.stage import Stage

__all__ = ["calm", "course", "machine", "points", "serve", "started"]

_CALM = Traffic(
    requests_per_second=constant(0.25),
    prompt_tokens=constant(1_200.0),
    output_tokens=constant(220.0),
    token_seconds=constant(0.022),
    cached_ratio=constant(0.2),
)


def calm(**changes: Any) -> Traffic:
    """A chat service at a third of what it could do: 0.25 requests a second, 1,200 tokens in, 220 out, 22 ms a
    token; ``changes`` are fields of ``Traffic``, plain numbers allowed for profiles."""
    profiles: dict[str, Any] = {
        name: constant(float(v)) if _plain(name, v) else v for name, v in changes.items()
    }
    return replace(_CALM, **profiles)


def _plain(name: str, value: object) -> bool:
    return isinstance(value, int | float) and isinstance(getattr(_CALM, name), Profile)


def points(*pairs: tuple[float, float]) -> Profile:
    """A profile from (seconds, value) pairs, straight between them."""
    return Profile(tuple(time for time, _ in pairs), tuple(value for _, value in pairs))


def course(times: Floats, values: Floats) -> Profile:
    """A profile that is what an array says."""
    return Profile(tuple(times.tolist()), tuple(values.tolist()))


def serve(
    stage: Stage,
    traffic: Traffic,
    page: Page | None = None,
    *,
    engine: str = "vllm",
    records: bool = True,
    turns: int = 0,
) -> Flow:
    """Send the traffic, put the engine's page and, if ``records``, the clients' records on the stage."""
    made = flow(traffic, stage.seconds)
    page = page or Page()
    (vllm if engine == "vllm" else sglang)(stage, made, page)
    if records:
        stage.record(made, page.host, turns=turns)
    return made


def machine(
    stage: Stage, made: Flow, *, board: Board | None = None, node: Host | None = None, gpus: int = 1
) -> None:
    """GPUs of one kind, and their host. Where ``board`` says nothing of use and power they follow the engine: busy
    while a request computes, at rest while none does or no step runs."""
    chosen, plain = board or Board(), Board()
    busy = _busy(stage, made)
    if chosen.utilization == plain.utilization:
        chosen = replace(chosen, utilization=course(stage.times, 0.85 * busy))
    if chosen.power_watts == plain.power_watts:
        chosen = replace(chosen, power_watts=course(stage.times, 95.0 + 400.0 * busy))
    for index in range(gpus):
        dcgm(stage, replace(chosen, index=index))
    host(stage, node or Host())


def _busy(stage: Stage, made: Flow) -> Floats:
    """Share of each scrape interval's seconds in which some request computes, shape (n,)."""
    seconds = made.grid[made.grid >= -stage.step_seconds]
    works = (made.running(seconds) > 0) & (made.traffic.speed.over(seconds) > 0)
    total = np.concatenate([[0.0], np.cumsum(works)])
    at = np.searchsorted(seconds, stage.times, side="right")
    before = np.maximum(at - round(stage.step_seconds), 0)
    share: Floats = (total[at] - total[before]) / np.maximum(at - before, 1)
    return share


def started(stage: Stage, log: str, arguments: Mapping[str, Any], *texts: str, at: float = -7200.0) -> None:
    """The lines of a vLLM's start: the arguments that differ from the defaults, then ``texts``."""
    stage.say(log, at, vllm_line(stage, at, f"non-default args: {dict(arguments)}", source="utils.py:233"))
    for number, text in enumerate(texts):
        moment = at + 20.0 + number
        stage.say(log, moment, vllm_line(stage, moment, text, source="kv_cache_utils.py:1087"))
