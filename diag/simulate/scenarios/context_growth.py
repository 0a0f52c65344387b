"""A client stops trimming: long-lived sessions resend their whole history, which grows with every turn."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Client, Lengths, Plan
from diag.simulate.profiles import Profile, constant, step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_load
from diag.simulate.scenarios.machines import Work, capacity_per_second, load_ratio, mean_tokens
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, held_tokens, prefill_tokens, widened

__all__ = ["SCENARIO", "plan"]

_TENANT = "t-desk"
_ANSWER_SECONDS = 8.0
_ROOM = 2.2  # of what the usual traffic holds: before it grows nobody waits for blocks
_OPENED = (-1_200.0, -600.0)
_TRIMMED_TOKENS = 1_200.0
_LONGEST_TOKENS = 14_000.0  # of anybody else's prompt


def plan(draw: Draw) -> Plan:
    """Sessions that were opened in the morning grow until computing one of them anew takes some seconds (up
    to 8); fresh ones stay as short as they were. With caching off every turn pays that; with caching on
    those do whose blocks the others pushed out."""
    made = healthy(draw, "context_growth")
    caching = draw.chance(0.45)
    made = every(made, prefix_caching=True) if caching else _uncached(made)
    seconds = draw.severe(1.5, 8.0) if caching else draw.severe(0.6, 4.5)
    goal = float(prefill_tokens(made.replicas[0].machine, seconds))
    think = draw.between(8.0, 20.0)
    turns = (draw.seconds - draw.onset) / (think + _ANSWER_SECONDS + seconds / 2)
    sessions = draw.between(6.0, 10.0)
    client = _client(draw, goal / turns, goal, think, sessions * len(made.replicas))
    made = _beside(made, sessions / (think + _ANSWER_SECONDS))
    made = _pool(made, draw, goal, sessions, tight=caching or draw.chance(0.6))
    if draw.chance(0.4):
        made = marked(
            made, draw.onset + draw.between(-60.0, 0.0), "deploy", "desk-backend", "desk-backend 2.4.0"
        )
    return told(
        replace(made, clients=(*made.clients, client)),
        causes=("context_growth",) if caching else ("context_growth", "prefix_cache_off"),
        onset=draw.onset,
        severity=draw.severity,
        scope={"tenants": (_TENANT,)},
    )


def _client(draw: Draw, turn_tokens: float, goal: float, think: float, sessions: float) -> Client:
    """A fixed crowd: its sessions began before the window and outlast it."""
    began = sessions / (_OPENED[1] - _OPENED[0])
    outputs = Lengths(min(draw.between(120.0, 260.0), turn_tokens / 2), 0.4, 4, 1_000)
    message = max(turn_tokens - mean_tokens(outputs), 30.0)
    return Client(
        tenant=_TENANT,
        sessions_per_second=Profile((_OPENED[0], *_OPENED, _OPENED[1]), (0.0, began, began, 0.0)),
        turns=Lengths(10_000.0, 0.0, 10_000, 10_000),
        think_seconds=think,
        head="system-desk",
        head_tokens=400,
        message_tokens=Lengths(message, 0.4, 8, 12_000),
        output_tokens=outputs,
        history_limit_tokens=step(draw.onset, _TRIMMED_TOKENS, 1.5 * goal),
    )


def _uncached(plan: Plan) -> Plan:
    """Caching was never on; the traffic is what such a service can carry."""
    before = load_ratio(plan)
    plan = every(plan, prefix_caching=False)
    return with_load(plan, constant(min(before / load_ratio(plan), 1.0)))


def _beside(plan: Plan, requests_per_second: float) -> Plan:
    """The others' traffic, less what one replica's long sessions (trimmed, so that little of them is cached)
    already take of it."""
    replica = plan.replicas[0]
    turn = Work(requests_per_second, _TRIMMED_TOKENS, 2 * _TRIMMED_TOKENS, 180.0)
    taken = requests_per_second / capacity_per_second(replica.machine, replica.settings, turn)
    return with_load(plan, constant(max(1.0 - taken / load_ratio(plan), 0.3)))


def _pool(plan: Plan, draw: Draw, goal: float, sessions: float, *, tight: bool) -> Plan:
    """``tight``: the grown sessions of a replica push each other out of it. Any one of them fits, and any
    other prompt."""
    if not tight:
        return widened(plan, draw.between(1.2, 1.8) * goal * sessions)
    held = held_tokens(plan)
    usual = _ROOM * (held + 1.5 * _TRIMMED_TOKENS * sessions)
    grown = draw.severe(0.8, 0.5) * (held + goal * sessions)
    blocks = int(max(usual, grown, 1.3 * goal + _LONGEST_TOKENS) / 16)
    return every(plan, kv_blocks=blocks, max_model_len_tokens=131_072)


SCENARIO = Scenario(
    "context_growth", "context_growth", "cause", "old sessions resend an ever longer history", plan
)
