"""Sequence slots, or adapter slots, are too few while KV and the GPU are free."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, told
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import after_restart, batch, every, struck

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """After a restart an engine runs at most ``severe(1.6, 0.7)`` times the sequences that it needs to on
    average, or fewer adapters at a time than requests ask for: one less to one in all."""
    made = healthy(draw, "sequence_limit")
    marked = draw.chance(0.7)
    text = (
        draw.pick(("scheduler settings change rolled out", "engine start script renewed")) if marked else ""
    )
    adapters = len(made.clients) >= 3 and draw.chance(0.3)
    if adapters:
        made = _with_adapters(made)
    names = struck(made, draw)
    if adapters:
        slots = max(round((len(made.clients) - 1) * (1.0 - draw.severity)), 1)
        made = after_restart(made, draw, names, text=text, max_loras=slots)
    else:
        slots = max(round(batch(made) * draw.severe(1.6, 0.7)), 1)
        made = after_restart(made, draw, names, text=text, max_num_seqs=slots)
    made = told(
        made,
        causes=("sequence_limit", "config_change"),
        accept=("config_change",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": names},
    )
    return deciding(made, made.shown.engine_log or marked, "the log, which alone states the limit")


def _with_adapters(plan: Plan) -> Plan:
    """Every tenant has an adapter of its own, and all fit beside each other."""
    clients = tuple(replace(client, adapter=f"adapter-{client.tenant}") for client in plan.clients)
    return every(replace(plan, clients=clients), max_loras=len({client.adapter for client in clients}))


SCENARIO = Scenario("sequence_limit", "sequence_limit", "cause", "too few sequence or adapter slots", plan)
