"""The KV pool shrinks below what the traffic needs: fewer blocks after a restart, marked or not."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.profiles import step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import card_of, replica_of, told, with_card
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import after_restart, every, fitting, held_tokens, struck

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """After a restart the pool holds ``severe(1.7, 0.55)`` of what the running sequences need on average."""
    made = healthy(draw, "kv_cache_exhaustion")
    tokens = held_tokens(made) * draw.severe(1.7, 0.55)
    made = every(fitting(made, tokens), reserve_full_isl=draw.chance(0.4), max_num_seqs=128)
    names = struck(made, draw)
    way = draw.pick(("flag", "memory", "shared"))
    blocks = max(int(tokens / 16), 40)
    text = {
        "flag": "KV cache size change rolled out",
        "memory": "gpu_memory_utilization lowered",
        "shared": "",
    }
    marked = way != "shared" and draw.chance(0.75)
    made = after_restart(made, draw, names, text=text[way] if marked else "", kv_blocks=blocks)
    if way == "shared":
        made = _shared(made, draw, names)
    return told(
        made,
        causes=("kv_cache_exhaustion",) if way == "shared" else ("kv_cache_exhaustion", "config_change"),
        accept=() if way == "shared" else ("config_change",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": names},
    )


def _shared(plan: Plan, draw: Draw, names: tuple[str, ...]) -> Plan:
    """Another engine starts on the same cards at the same time: its memory is what is missing, and its idle
    batch takes no time."""
    for name in names:
        replica = replica_of(plan, name)
        for index in replica.gpus:
            if card_of(plan, replica.host, index).foreign_memory_bytes.still:
                memory = step(draw.onset, 0.0, draw.between(18e9, 34e9))
                plan = with_card(plan, replica.host, index, foreign_memory_bytes=memory)
    return plan


SCENARIO = Scenario(
    "kv_cache_exhaustion", "kv_cache_exhaustion", "cause", "the KV pool is smaller after a restart", plan
)
