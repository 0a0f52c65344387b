"""A client stops trimming: long-lived sessions resend their whole history, which grows with every turn."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Client, Lengths, Plan
from diag.simulate.profiles import constant, step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_load
from diag.simulate.scenarios.machines import load_ratio, mean_tokens
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, request_rate, widened

__all__ = ["SCENARIO"]

_TENANT = "t-desk"
_ANSWER_SECONDS = 8.0
_TRIMMED_TOKENS = 2_500.0


def plan(draw: Draw) -> Plan:
    """Sessions that were opened in the morning grow; fresh ones stay as short as they were."""
    made = healthy(draw, "context_growth")
    caching = draw.chance(0.45)
    if not caching:
        made = _uncached(made)
    think = draw.between(8.0, 20.0)
    turns = (draw.seconds - draw.onset) / (think + _ANSWER_SECONDS)
    goal = draw.severe(7_000.0, 40_000.0)
    sessions = max(round(draw.severe(2.0, 6.0) * len(made.replicas)), 2)
    client = _client(draw, goal / turns, goal, think, sessions)
    made = widened(replace(made, clients=(*made.clients, client)), _pool(draw, made, goal, sessions, caching))
    if draw.chance(0.4):
        made = marked(
            made, draw.onset + draw.between(-60.0, 0.0), "deploy", "desk-backend", "desk-backend 2.4.0"
        )
    return told(
        made,
        causes=("context_growth",) if caching else ("context_growth", "prefix_cache_off"),
        onset=draw.onset,
        severity=draw.severity,
        scope={"tenants": (_TENANT,)},
    )


def _client(draw: Draw, turn_tokens: float, goal: float, think: float, sessions: int) -> Client:
    """A fixed crowd: all its sessions begin in the first twentieth of the window and outlast it."""
    opening = draw.seconds / 20.0
    outputs = Lengths(min(draw.between(120.0, 260.0), turn_tokens / 2), 0.4, 4, 1_000)
    message = max(turn_tokens - mean_tokens(outputs), 30.0)
    return Client(
        tenant=_TENANT,
        sessions_per_second=step(opening, sessions / opening, 0.0),
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


def _pool(draw: Draw, plan: Plan, goal: float, sessions: int, caching: bool) -> float:
    """Room for the grown sessions: ample, or so that they push each other out of it; never for less than one
    of them beside the usual traffic."""
    together = goal * sessions / len(plan.replicas)
    share = draw.between(0.5, 1.0) if caching or draw.chance(0.6) else draw.between(1.2, 1.8)
    return max(share * together, 1.8 * goal) + request_rate(plan) * 500.0


SCENARIO = Scenario(
    "context_growth", "context_growth", "cause", "old sessions resend an ever longer history", plan
)
