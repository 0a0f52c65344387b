"""KV blocks stay taken after their requests ended; the floor of KV usage only rises."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan
from diag.simulate.profiles import step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import replica_of, told, with_replica
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import request_rate, struck

__all__ = ["SCENARIO", "plan"]

_LEAVING = 0.06


def plan(draw: Draw) -> Plan:
    """``severe(0.75, 1)`` of the pool is gone after ``severe(0.9, 0.3)`` of what is left of the window: by
    itself, or with every client that leaves."""
    made = healthy(draw, "kv_block_leak")
    names = struck(made, draw)
    seconds = (draw.seconds - draw.onset) * draw.severe(0.9, 0.3)
    by_leaving = draw.chance(0.4)
    if by_leaving:
        leaving = step(draw.onset, 0.0, _LEAVING)
        clients = tuple(
            replace(client, leave_ratio=leaving, patience_seconds=4.0, leave_seen=True)
            for client in made.clients
        )
        leavers = max(request_rate(made) * _LEAVING * seconds * 0.7, 3.0)
        made = replace(made, clients=clients)
    for name in names:
        blocks = replica_of(made, name).settings.kv_blocks * draw.severe(0.75, 1.0)
        if by_leaving:
            made = with_replica(made, name, leak_blocks_per_abort=blocks / leavers)
        else:
            made = with_replica(made, name, leak_blocks_per_second=step(draw.onset, 0.0, blocks / seconds))
    return told(
        made,
        causes=("kv_block_leak",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": names},
    )


SCENARIO = Scenario("kv_block_leak", "kv_block_leak", "cause", "KV blocks are never given back", plan)
