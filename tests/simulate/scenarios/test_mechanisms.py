"""A severe case of each scenario of traffic and engine hurts somebody, and by its own mechanism."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from diag.accuracy.felt import felt
from diag.model import Floats
from diag.simulate.observed import Call, Engine, Run
from diag.simulate.scenarios.causes_traffic import TRAFFIC
from diag.simulate.scenarios.draw import STANDARD, Draw, draw_of
from diag.simulate.serving import run

SEEDS = (41, 42)
SCENARIOS = {scenario.id: scenario for scenario in TRAFFIC}


def _severe(seed: int, replicas: int) -> Draw:
    """A short window (2 × 12 minutes) of a small service, so that all of them together take seconds."""
    conditions = replace(STANDARD, severity=(0.7, 1.0), replicas=(replicas,), confounders=0.0)
    return replace(draw_of(seed, conditions), seconds=1_440.0, onset=720.0)


@cache
def _run(name: str, seed: int) -> Run:
    return run(SCENARIOS[name].plan(_severe(seed, 2 if name == "prefix_cache_scattered" else 1)))


def _onset(made: Run) -> float:
    onset = made.plan.truth.onset
    assert onset is not None
    return onset


def _sides(made: Run) -> tuple[list[Call], list[Call]]:
    """Calls sent before the onset, and in the later half of what follows: a climb is done by then."""
    onset, end = _onset(made), made.plan.seconds
    before = [call for call in made.calls if 100.0 < call.sent < onset]
    return before, [call for call in made.calls if call.sent > (onset + end) / 2]


def _mean(values: Iterable[float]) -> float:
    return float(np.nanmean(list(values)))


def _grows(
    of: Callable[[Call], float], factor: float, *, tenants: bool | None = None
) -> Callable[[Run], bool]:
    """A mean over calls grows by ``factor``; ``tenants``: of the label's tenants alone (or of all others)."""

    def check(made: Run) -> bool:
        named = dict(made.plan.truth.scope).get("tenants", ())
        known = {client.tenant for client in made.plan.clients}
        old = {call.tenant for call in _sides(made)[0]}
        kept = known & old if tenants is None else {t for t in known & old if (t in named) == tenants}
        before, after = ([of(call) for call in side if call.tenant in kept] for side in _sides(made))
        return _mean(after) > factor * _mean(before)

    return check


def _waited(call: Call) -> float:
    return call.first_token - call.arrived


def _inter_token(call: Call) -> float:
    return (call.ended - call.first_token) / max(call.output_tokens - 1, 1)


def _increase(made: Run, name: str) -> tuple[float, float]:
    """Of a counter over all engines: before the onset, and after it."""
    total = sum((engine.counters[name] for engine in made.engines), np.zeros(made.times.shape))
    at = int(np.searchsorted(made.times, _onset(made)))
    return float(total[at] - total[0]), float(total[-1] - total[at])


def _falls(above: str, below: str, factor: float) -> Callable[[Run], bool]:
    """A ratio of two counters falls to less than ``factor`` of what it was."""

    def check(made: Run) -> bool:
        (a, b), (c, d) = _increase(made, above), _increase(made, below)
        return b / max(d, 1.0) < factor * a / c

    return check


def _after(made: Run, of: Callable[[Engine], Floats]) -> Floats:
    """Values of all engines at the scrapes after the onset, shape (engines × n,)."""
    late = made.times > _onset(made)
    return np.concatenate([of(engine)[late] for engine in made.engines])


def _gauge(name: str) -> Callable[[Engine], Floats]:
    return lambda engine: engine.gauges[name]


def _full(made: Run) -> bool:
    waits = _after(made, _gauge("waiting")).max() > 0 or _increase(made, "preemptions")[1] > 0
    return bool(waits) and float(np.quantile(_after(made, _gauge("kv_used_ratio")), 0.7)) > 0.85


def _stops_caching(made: Run) -> bool:
    before, after = _increase(made, "queries_tokens")
    return after < 0.5 * before


def _slots_bind(made: Run) -> bool:
    held = (_after(made, _gauge("waiting")) > 0) & (_after(made, _gauge("running")) > 0)
    return float(held.mean()) > 0.3 and float(np.median(_after(made, _gauge("kv_used_ratio")))) < 0.8


def _nothing_runs(made: Run) -> bool:
    idle = (_after(made, _gauge("running")) == 0) & (_after(made, _gauge("waiting")) > 0)
    return bool(idle.sum() >= 3)


def _no_token(made: Run) -> bool:
    tokens = _after(made, lambda engine: engine.counters["generation_tokens"])
    inside = _after(made, _gauge("running")) + _after(made, _gauge("waiting"))
    return bool(((np.diff(tokens) == 0) & (inside[1:] > 0) & (inside[:-1] > 0)).sum() >= 3)


def _floor_rises(made: Run) -> bool:
    used = _after(made, _gauge("kv_used_ratio"))
    tenth = max(len(used) // 10, 2)
    return float(used[-tenth:].min()) > 0.5 + float(used[:tenth].min())


def _share_rises(made: Run) -> bool:
    tenant = dict(made.plan.truth.scope).get("tenants", ("",))[0]
    if not tenant:  # the records do not say whose calls these are
        return _grows(_waited, 1.5)(made)
    before, after = (
        sum(c.prompt_tokens for c in side if c.tenant == tenant) / sum(c.prompt_tokens for c in side)
        for side in _sides(made)
    )
    return after > 0.5 and after > before + 0.15


def _arrives_more(made: Run) -> bool:
    onset, end = _onset(made), made.plan.seconds
    before, after = _sides(made)
    return len(after) / ((end - onset) / 2) > 1.2 * len(before) / (onset - 100.0)


def _left(made: Run) -> bool:
    before, after = (_mean(call.status == "aborted" for call in side) for side in _sides(made))
    return after > before + 0.1


def _crashes(made: Run) -> bool:
    return any(down >= _onset(made) for _, down, _ in made.restarts)


def _says_bind(made: Run) -> bool:
    return any("address already in use" in text for time, _, text in made.log if time >= _onset(made))


def _structured_stalls(made: Run) -> bool:
    _, after = _sides(made)
    return any(call.structured for call in after) and _grows(_waited, 1.3)(made)


MECHANISMS: Mapping[str, Callable[[Run], bool]] = {
    "context_growth": _grows(lambda call: call.prompt_tokens, 1.5, tenants=True),
    "kv_cache_exhaustion": _full,
    "prefix_cache_off": _stops_caching,
    "prefix_cache_broken": _falls("hits_tokens", "queries_tokens", 0.6),
    "prefix_cache_scattered": _falls("hits_tokens", "queries_tokens", 0.85),
    "load_burst": _arrives_more,
    "head_of_line_blocking": _grows(_waited, 1.5, tenants=False),
    "prefill_interference": _grows(_inter_token, 1.3),
    "tenant_dominance": _share_rises,
    "abandoned_requests": _left,
    "long_outputs": _grows(lambda call: float(call.output_tokens or np.nan), 1.5, tenants=True),
    "sequence_limit": _slots_bind,
    "oversized_request": _nothing_runs,
    "engine_stall": _no_token,
    "kv_block_leak": _floor_rises,
    "cuda_graph_gap": _grows(_inter_token, 1.3),
    "spec_decode_collapse": _falls("accepted_tokens", "draft_tokens", 0.6),
    "grammar_stall": _structured_stalls,
    "engine_restart": _crashes,
    "port_conflict": _says_bind,
    "config_change": lambda made: _grows(_inter_token, 1.15)(made) or _grows(_waited, 1.3)(made),
}


def test_every_scenario_has_a_mechanism_here() -> None:
    assert MECHANISMS.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_severe_case_is_felt(name: str, seed: int) -> None:
    found = felt(_run(name, seed))

    assert found.felt, (found.what, found.before, found.during)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_severe_case_hurts_by_its_mechanism(name: str, seed: int) -> None:
    assert MECHANISMS[name](_run(name, seed))
