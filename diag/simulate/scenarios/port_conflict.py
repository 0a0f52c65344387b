"""An engine does not come up again: its port is taken, and it ends instead of trying another."""

from __future__ import annotations

from diag.simulate.plan import Plan, Restart
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, marked, replica_of, told, with_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "plan"]

_ATTEMPT_SECONDS = 35.0


def plan(draw: Draw) -> Plan:
    """A restart that ends in ``severe(2, 25)`` failed starts before one succeeds, or in nothing but those."""
    made = healthy(draw, "port_conflict")
    name = draw.pick(made.replicas).name
    attempts = round(draw.severe(2.0, 25.0))
    down = min((attempts + 1) * _ATTEMPT_SECONDS * draw.between(0.8, 1.3), draw.seconds - draw.onset - 30.0)
    restart = Restart(draw.onset, down, reason="bind", attempts=attempts)
    made = with_replica(made, name, restarts=(*replica_of(made, name).restarts, restart))
    if draw.chance(0.5):
        made = marked(made, draw.onset - draw.between(0.0, 10.0), "restart", name, "node drained and back")
    made = told(
        made,
        causes=("port_conflict",),
        accept=() if made.shown.engine_log else ("engine_restart",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": (name,)},
    )
    return deciding(made, made.shown.engine_log, "the log, which alone names the bind failure")


SCENARIO = Scenario("port_conflict", "port_conflict", "cause", "start-up fails on a taken port", plan)
