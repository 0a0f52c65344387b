"""The catalogue of scenarios: one incident a file."""

from __future__ import annotations

from diag.simulate.scenarios.causes_machine import MACHINE
from diag.simulate.scenarios.causes_traffic import TRAFFIC
from diag.simulate.scenarios.draw import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {scenario.id: scenario for scenario in (*TRAFFIC, *MACHINE)}
"""By id, in the order of the catalogue of hypotheses; healthy, unknown and double ones last."""
