"""What each recording does, and the answer that counts as right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.recording.loads import Mix

__all__ = ["SCENARIOS", "Scenario"]

_BASE = Mix()
_ONE_ENGINE = "--max-model-len 32768 --num-gpu-blocks-override 8800 --max-num-seqs 16"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One recording; ``causes`` empty means nothing is wrong, and ``accept`` may then be left out.

    ``mix`` maps seconds since the onset to the load. ``event`` is (kind, target, text), written at the onset.
    """

    name: str
    change: str
    causes: tuple[str, ...]
    mix: Callable[[float], Mix]
    accept: tuple[str | None, ...] = ()
    scope: tuple[tuple[str, tuple[str, ...]], ...] = ()
    healthy_seconds: int = 80
    incident_seconds: int = 110
    flags: str = _ONE_ENGINE
    engines: int = 1
    growing_sessions: int = 0
    document_sessions: int = 0
    restart_at_onset: bool = False
    relay_delay_seconds: tuple[float, float] | None = None
    event: tuple[str, str, str] | None = None


def _step(before: Mix, after: Mix) -> Callable[[float], Mix]:
    return lambda since: before if since < 0 else after


def _rates(mix: Mix, *factors: float) -> Mix:
    return replace(mix, tenant_rates=tuple(r * f for r, f in zip(mix.tenant_rates, factors, strict=True)))


def _ramp(since: float) -> Mix:
    factor = 1.2 * (1 + 5 * min(1.0, max(0.0, since / 60)))
    return _rates(_BASE, *[factor] * 4)


_VLLM_0 = (("instance", ("vllm-0:8000",)),)
_BUSY = replace(_BASE, tenant_rates=(0.25,) * 4, answer_tokens=(200, 400))
_SHORT = replace(_BASE, answer_tokens=(80, 160))
_VARIED = replace(_BASE, prompt_tokens=(300, 3000), answer_tokens=(50, 600), turns=(1, 2))
_DOCUMENTS = replace(_BASE, answer_tokens=(60, 120), think_seconds=(3.0, 6.0))

_ALL = (
    Scenario(
        "tenant_dominance",
        "session arrival rate of tenant t-c (one of four equal ones) x8, lengths equal",
        ("tenant_dominance",),
        _step(_BUSY, _rates(_BUSY, 1, 1, 8, 1)),
        scope=(("tenant", ("t-c",)),),
        healthy_seconds=84,
    ),
    Scenario(
        "engine_restart",
        "kill -9 of server and engine core at the onset, started again at once with the same flags, no event",
        ("engine_restart",),
        _step(_BASE, _BASE),
        scope=_VLLM_0,
        healthy_seconds=77,
        incident_seconds=120,
        restart_at_onset=True,
    ),
    Scenario(
        "load_ramp",
        "session arrival rate climbs linearly to x6 over 60 s from the onset and stays, lengths equal",
        ("load_burst",),
        _ramp,
        scope=_VLLM_0,
        incident_seconds=120,
    ),
    Scenario(
        "healthy_b",
        "nothing wrong: a harmless deploy event and session arrival rate x1.3",
        (),
        _step(_BASE, _rates(_BASE, 1.3, 1.3, 1.3, 1.3)),
        event=("deploy", "web-frontend", "web-frontend 2.4.0 rolled out (new icons)"),
    ),
    Scenario(
        "healthy_c",
        "nothing wrong, nothing changes: prompts 300-3000 and answers 50-600 tokens throughout",
        (),
        _step(_VARIED, _VARIED),
        incident_seconds=100,
    ),
    Scenario(
        "context_growth_mild",
        "three long sessions stop trimming their history; caching on, everything fits the pool",
        ("context_growth",),
        _step(_SHORT, replace(_SHORT, trimmed=False)),
        scope=(*_VLLM_0, ("session", ("s001", "s002", "s003"))),
        growing_sessions=3,
        incident_seconds=120,
    ),
    Scenario(
        "prefix_cache_scattered_short",
        "two engines, 12 sessions over documents of 2000 tokens; sticky routing becomes round robin",
        ("prefix_cache_scattered",),
        _step(_DOCUMENTS, replace(_DOCUMENTS, round_robin=True)),
        accept=("prefix_cache_scattered", None),
        scope=(("instance", ("vllm-0:8000", "vllm-1:8000")),),
        flags="--max-model-len 8192 --num-gpu-blocks-override 900 --max-num-seqs 16",
        engines=2,
        document_sessions=12,
        healthy_seconds=88,
    ),
    Scenario(
        "mixed_load_and_outputs",
        "session arrival rate x2.5 and answers x3 at once",
        ("load_burst", "long_outputs"),
        _step(_BASE, replace(_rates(_BASE, 2.5, 2.5, 2.5, 2.5), answer_tokens=(450, 900))),
        accept=("load_burst", "long_outputs"),
        scope=_VLLM_0,
    ),
    Scenario(
        "abort_mild",
        "30 % of requests cut by the client after 0.5 s, no retry, the conversation ends there",
        ("abandoned_requests",),
        _step(_BASE, replace(_BASE, abandoned_ratio=0.3)),
        scope=_VLLM_0,
        healthy_seconds=86,
    ),
    Scenario(
        "network_jitter",
        "a relay in front of the engine for the whole run; from the onset it delays bytes 0.3-0.6 s each way",
        ("network_latency",),
        _step(_BASE, _BASE),
        scope=(("link", ("client->vllm-0:8000",)),),
        healthy_seconds=75,
        relay_delay_seconds=(0.3, 0.6),
    ),
)
SCENARIOS = {scenario.name: scenario for scenario in _ALL}
