"""Scenarios of GPUs, hosts, network and fabric, of the telemetry, and of nothing at all."""

from __future__ import annotations

from diag.simulate.scenarios.draw import Scenario

__all__ = ["MACHINE"]

MACHINE: tuple[Scenario, ...] = ()
