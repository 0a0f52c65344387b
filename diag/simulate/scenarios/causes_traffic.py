"""Scenarios of traffic, sessions and the engine."""

from __future__ import annotations

from diag.simulate.scenarios.draw import Scenario

__all__ = ["TRAFFIC"]

TRAFFIC: tuple[Scenario, ...] = ()
