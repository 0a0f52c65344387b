"""Incidents that no recording shows: telemetry made by a small generator, laid over real recordings.

    overlaid("healthy_thermal")                  -> Bundle in memory
    write_overlaid("healthy_thermal", folder)    -> the same as a diag.bundle/1 folder

A made-up part is named so where an operator sees it: the GPU's model, the bundle's notes, its label.
The serving simulator with its scenarios comes beside this.
"""

from __future__ import annotations

from diag.simulate.catalogue import OVERLAID, Overlaid, overlaid, write_overlaid
from diag.simulate.parts import Bundle, load, save
from diag.simulate.stretch import slow_down

__all__ = ["OVERLAID", "Bundle", "Overlaid", "load", "overlaid", "save", "slow_down", "write_overlaid"]
