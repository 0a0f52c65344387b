"""A service that is well, with nothing but innocent oddities."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO"]


def _plan(draw: Draw) -> Plan:
    return healthy(draw, "healthy")


SCENARIO = Scenario("healthy", "", "healthy", "nothing is wrong", _plan)
