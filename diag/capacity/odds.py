"""Chances that come up in incidents: a taken port, a process on the wrong NUMA node, a stale belief."""

from __future__ import annotations

import math

__all__ = ["any_clash_ratio", "belief_suspect_until", "busy_port_ratio", "misplacement_loss_ratio"]


def any_clash_ratio(choosers: int, first_port: int, last_port: int) -> float:
    """Chance that any two of ``choosers`` processes draw one port of the range, both ends included."""
    ports = last_port - first_port + 1
    if choosers > ports:
        return 1.0
    return 1 - math.prod(1 - taken / ports for taken in range(choosers))


def busy_port_ratio(busy: int, first_port: int, last_port: int) -> float:
    """Chance that one process draws one of ``busy`` taken ports."""
    return busy / (last_port - first_port + 1)


def misplacement_loss_ratio(numa_nodes: int, worst_loss_ratio: float) -> float:
    """Expected loss of a process placed at random that loses ``worst_loss_ratio`` anywhere but right."""
    return worst_loss_ratio * (1 - 1 / numa_nodes)


def belief_suspect_until(died: float, time_to_live_seconds: float) -> float:
    """Until when peers may believe in the cache of a process that died at ``died``, in seconds."""
    return died + time_to_live_seconds
