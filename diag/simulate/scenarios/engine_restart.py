"""An engine crashes: its work is lost, it is away for a while and comes back with cold caches."""

from __future__ import annotations

from diag.simulate.plan import Plan, Restart
from diag.simulate.profiles import Profile
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import replica_of, told, with_replica
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, heavy_heads, struck

__all__ = ["SCENARIO", "plan"]

_WARM_UP_SECONDS = 120.0


def plan(draw: Draw) -> Plan:
    """One crash, or up to four of them, each ``severe(35, 200)`` seconds long."""
    made = every(healthy(draw, "engine_restart"), prefix_caching=True)
    if draw.chance(0.6):
        made = heavy_heads(made, draw.severe(0.4, 1.5))
    names = struck(made, draw, all_ratio=0.5)
    count = 1 + round(3 * draw.severity * draw.between(0.3, 1.0))
    gap = 0.8 * (draw.seconds - draw.onset) / count
    for name in names:
        down = min(draw.severe(35.0, 200.0) * draw.between(0.8, 1.2), 0.6 * gap)
        crashes = tuple(
            Restart(draw.onset + number * gap * draw.between(0.9, 1.0), down, reason="crash")
            for number in range(count)
        )
        made = with_replica(
            made,
            name,
            restarts=(*replica_of(made, name).restarts, *crashes),
            step_factor=_warm_up(crashes),
        )
    return told(
        made,
        causes=("engine_restart",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": names},
    )


def _warm_up(crashes: tuple[Restart, ...]) -> Profile:
    """The first steps after a start are slow: kernels are tuned and graphs compiled as batches come up."""
    times: list[float] = [0.0]
    values: list[float] = [1.0]
    for crash in crashes:
        up = crash.time + crash.down_seconds
        times += [up, up, up + _WARM_UP_SECONDS]
        values += [1.0, 1.6, 1.0]
    return Profile(tuple(times), tuple(values))


SCENARIO = Scenario("engine_restart", "engine_restart", "cause", "an engine crashes and starts cold", plan)
