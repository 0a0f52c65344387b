"""How large a trouble must be to hurt this very service: limits and loads in terms of what it runs at.

An absolute limit of eight sequences is nothing to one drawn service and the end of another; scenarios
therefore ask here for "what this one needs" and multiply that by their severity.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from diag.simulate.plan import Client, Lengths, Machine, Plan, Restart, Settings
from diag.simulate.profiles import constant
from diag.simulate.scenarios.draw import Draw
from diag.simulate.scenarios.edits import marked, replica_of, with_load, with_replica, with_settings
from diag.simulate.scenarios.machines import Work, load_ratio, mean_tokens, running, work

__all__ = [
    "after_restart", "asked", "batch", "crowded", "every", "fitting", "heavy_heads", "held_tokens",
    "long_sessions", "overload", "prefill_tokens", "request_rate", "several", "struck", "widened",
]  # fmt: skip

_FULLEST = 0.85  # of the capacity: beyond it the limit is not the limit any more
_BLOCK = 16


def several(draw: Draw, least: int = 2) -> Draw:
    """The same dice for a service of ``least`` replicas or more."""
    wanted = tuple(count for count in draw.conditions.replicas if count >= least)
    return replace(draw, conditions=replace(draw.conditions, replicas=wanted))


def struck(plan: Plan, draw: Draw, *, all_ratio: float = 0.6) -> tuple[str, ...]:
    """Replicas that are hit: all of them in that share of throws, else some, at least one."""
    names = tuple(replica.name for replica in plan.replicas)
    if len(names) == 1 or draw.chance(all_ratio):
        return names
    count = int(draw.rng.integers(1, len(names)))
    return tuple(sorted(draw.rng.choice(names, size=count, replace=False).tolist()))


def every(plan: Plan, **changes: Any) -> Plan:
    """All replicas with engine flags changed from the start."""
    for replica in plan.replicas:
        plan = with_settings(plan, replica.name, **changes)
    return plan


def asked(plan: Plan) -> Work:
    """What clients ask for when the window begins."""
    return work(plan.clients, plan.replicas[0].settings.prefix_caching)


def request_rate(plan: Plan) -> float:
    """Requests a second of one replica."""
    return asked(plan).requests_per_second / len(plan.replicas)


def batch(plan: Plan, factor: float = 1.0) -> float:
    """Mean number of sequences that one replica runs at ``factor`` times its traffic."""
    return running(plan.replicas[0].machine, asked(plan), factor * request_rate(plan))


def held_tokens(plan: Plan) -> float:
    """Tokens of KV that the running sequences of one replica hold on average."""
    return batch(plan) * asked(plan).context


def crowded(plan: Plan, draw: Draw, least: float, most: float) -> tuple[Plan, float]:
    """Sequence slots that ``growth`` times the traffic just fills, and that growth (``least`` … ``most``)."""
    growth = min(draw.between(least, most), _FULLEST / max(load_ratio(plan), 0.05))
    slots = math.ceil(batch(plan, growth)) + 1
    return every(plan, max_num_seqs=slots), growth


def overload(plan: Plan, draw: Draw, mild: float, severe: float) -> tuple[Plan, float]:
    """The plan, and how many times its traffic is ``mild`` … ``severe`` of what it can serve. Mostly sequence
    slots are what runs out first; otherwise the batch grows until the GPU is."""
    if draw.chance(0.7):
        plan, room = crowded(plan, draw, 1.4, 2.6)
    else:
        room = 1.0 / max(load_ratio(plan), 0.05)
    return plan, max(room * draw.severe(mild, severe), 1.15)


def prefill_tokens(machine: Machine, seconds: float) -> int:
    """Length of the prompt whose prefill, alone on the GPU, takes ``seconds``."""
    linear, square = machine.prefill_token_seconds, machine.prefill_pair_seconds / 2
    return max(int((math.sqrt(linear**2 + 4 * square * seconds) - linear) / (2 * square)), 16)


def widened(plan: Plan, tokens: float) -> Plan:
    """All pools with room for ``tokens`` more, and a model limit that does not bind."""
    for replica in plan.replicas:
        settings = replica.settings
        plan = with_settings(
            plan,
            replica.name,
            kv_blocks=settings.kv_blocks + math.ceil(tokens / _BLOCK),
            max_model_len_tokens=max(settings.max_model_len_tokens, 131_072),
        )
    return plan


def fitting(plan: Plan, tokens: float) -> Plan:
    """All requests cut so that each alone fits into ``tokens``: what then waits does so for others' KV."""
    room = int(tokens) - 64
    clients = []
    for client in plan.clients:
        head = min(client.head_tokens, room // 4)
        outputs = _cut(client.output_tokens, room // 4)
        messages = _cut(client.message_tokens, room // 4)
        history = min(client.history_limit_tokens.values[0], room // 5)
        clients.append(
            replace(
                client,
                head_tokens=head,
                output_tokens=outputs,
                message_tokens=messages,
                history_limit_tokens=constant(float(history)),
            )
        )
    return replace(plan, clients=tuple(clients))


def heavy_heads(plan: Plan, seconds: float) -> Plan:
    """Every tenant's prompts begin with a shared head (tools, rules, examples) whose prefill costs
    ``seconds``; while it is cached nobody notices."""
    tokens = prefill_tokens(plan.replicas[0].machine, seconds)
    clients = tuple(replace(client, head_tokens=max(client.head_tokens, tokens)) for client in plan.clients)
    peak = batch(plan) + 3 * math.sqrt(batch(plan)) + len(clients)
    return widened(replace(plan, clients=clients), tokens * peak)


def long_sessions(plan: Plan, draw: Draw, seconds: float) -> Plan:
    """Chats go on for many turns, and computing a mean history anew costs ``seconds``. The load stays what it
    was, and the pools keep the sessions that are open."""
    before = load_ratio(plan)
    history = prefill_tokens(plan.replicas[0].machine, seconds)
    clients = tuple(_lengthened(client, draw, history) for client in plan.clients)
    plan = replace(plan, clients=clients)
    plan = with_load(plan, constant(before / load_ratio(plan)))
    open_sessions = sum(
        client.sessions_per_second.values[0] * mean_tokens(client.turns) * (client.think_seconds + 8.0)
        for client in plan.clients
        if client.turns.median > 1
    )
    return widened(plan, 2.0 * history * (1.5 * open_sessions / len(plan.replicas) + 4))


def _lengthened(client: Client, draw: Draw, history: int) -> Client:
    if client.turns.median <= 1:
        return client
    turns = draw.between(7.0, 12.0)
    message = max(2 * history / turns - mean_tokens(client.output_tokens), 60.0)
    return replace(
        client,
        turns=Lengths(turns, 0.3, 2, 30),
        message_tokens=Lengths(message, 0.4, 8, 6_000),
        history_limit_tokens=constant(4.0 * history),
        think_seconds=draw.between(8.0, 18.0),
    )


def after_restart(
    plan: Plan,
    draw: Draw,
    names: tuple[str, ...],
    *,
    text: str = "",
    kind: str = "config",
    reason: str = "deploy",
    **changes: Any,
) -> Plan:
    """``names`` restart one after another from the onset on and come back with engine flags changed.
    ``text``: of the event; without it nobody wrote one."""
    down = draw.between(25.0, 70.0)
    apart = min(down + 20.0, 0.3 * (draw.seconds - draw.onset) / len(names))
    for number, name in enumerate(names):
        replica = replica_of(plan, name)
        settings: Settings = replace(replica.settings, **changes)
        time = draw.onset + number * apart
        restart = Restart(time, down, settings, reason)
        restarts = tuple(sorted((*replica.restarts, restart), key=lambda one: one.time))
        plan = with_replica(plan, name, restarts=restarts)
    if not text:
        return plan
    target = names[0].partition(":")[0] if len(names) == 1 else "llm-engines"
    return marked(plan, draw.onset + draw.between(-20.0, 5.0), kind, target, text)


def _cut(lengths: Lengths, most: int) -> Lengths:
    return replace(
        lengths, most=max(min(lengths.most, most), lengths.least + 1), median=min(lengths.median, most / 2)
    )
