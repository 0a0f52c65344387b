"""Healthy but not serving: tokens stop while requests are held, and every probe says 200.

A deadlock, a parked connector load, a lost transfer, a worker that hangs in a collective. It is a stall only
where somebody asks: an engine that publishes when it steps shows old gauges after everybody left, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import PRESENT, Explained, Reach, stated
from diag.detectors.gpus import gpu_name
from diag.detectors.places import series_here
from diag.detectors.pool import pool_tokens
from diag.detectors.standstill import Standstill, asked_of, held_up, seen_ratio, standstills
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation, Series, Window
from diag.quantities import quantity

CARD = Card(
    id="engine_stall",
    title="The engine holds requests and serves none, though it answers its health checks",
    mechanism="The step loop stands still: a deadlock, a transfer that never comes, or a collective that one rank never joins. The API server lives on and answers health checks and scrapes.",
    signs=(
        "token counters flat while requests run or wait",
        "health checks and scrapes answered, CPU time of the API server goes on",
        "GPU at 100 % with little power (a collective spins), or at 0 %",
    ),
    rules_out=("tokens flow throughout",),
    look_alikes={
        "telemetry_fault": "gauges stand still because nobody asks, or the page does: clients are served",
        "oversized_request": "nothing runs, and the longest waiting prompt is larger than the pool",
        "abandoned_requests": "clients leave, tokens flow on",
        "runtime_pauses": "pauses that end by themselves and come again",
        "kv_transfer_failure": "what the parked requests wait for",
    },
    mitigations=(
        Mitigation("Take the instance out of the balancer: its health check will not.", True),
        Mitigation("Before the restart, dump stacks of the API server, the engine core and every worker (py-spy dump): only then can the cause be found.", True),
        Mitigation("Restart it; alert on tokens per second at running + waiting > 0, not on health.", False),
    ),
    next_check="Send one short request straight to the instance, and py-spy dump its processes while it hangs.",
    chain=("running_requests", "waiting_requests", "generation_tokens_per_second", "first_tokens_per_second", "ttft_seconds_p95"),
    leads_to=("abandoned_requests", "engine_restart"),
)  # fmt: skip

NEEDS = (
    ("generation_tokens_per_second", "prompt_tokens_per_second"),
    ("running_requests", "waiting_requests"),
)
_SPINS, _IDLE = 0.9, 0.1
_COARSE_SECONDS = 60.0


def examine(view: View) -> Iterator[Output]:
    """Silence while requests are held; who asked; what the GPU does meanwhile; what else would hold them."""
    silent = standstills(view)
    live = [s for s in silent if not s.frozen and (s.up_ratio is None or s.up_ratio >= PRESENT)]
    if not live:
        yield _none(view, silent)
        return
    worst = live[0]
    held = f"{worst.running:.0f} running and {worst.waiting:.0f} waiting requests"
    text = f"{worst.instance} made not one token for {quantity(worst.window.seconds, 'seconds')} with {held}"
    yield stated("silent", "generation_tokens_per_second", True, text, onset=worst.window.start)
    if worst.up_ratio is not None:
        yield stated("alive", "target_up", True, "it answered its scrapes meanwhile")
    yield from _held(view, worst)
    yield from _asked(view, worst)
    yield from _cards(view, worst)
    cries = [e for e in view.case.events if e.kind == "engine_error" and worst.window.contains(e.time)]
    if cries:
        yield stated("cried", "generation_tokens_per_second", True, f"its log says: {cries[0].text}")
    share = sum(s.window.seconds for s in live if s.instance == worst.instance) / view.spans.incident.seconds
    yield Explained(float(np.clip(share, 0.0, 1.0)))
    yield Reach({"instances": tuple(dict.fromkeys(s.instance for s in live))})


def _none(view: View, silent: tuple[Standstill, ...]) -> Output:
    if silent:
        text = (
            f"{silent[0].instance} is silent, but so is its page: whether it serves is not to be seen there"
        )
        return stated("silent", "generation_tokens_per_second", False, text, degree=0.3)
    whole = seen_ratio(view, "generation_tokens_per_second", "prompt_tokens_per_second") >= PRESENT
    # Points minutes apart are means over minutes: a silence shorter than that leaves none of them at zero.
    coarse = max(view.case.step_seconds, view.spans.look_back_seconds) > _COARSE_SECONDS
    text = "tokens flow whenever requests are there"
    if coarse:
        text += ", as far as such coarse points tell"
    return stated(
        "silent", "generation_tokens_per_second", False, text, degree=0.3 if coarse else 0.0,
        decisive=whole and not coarse,
    )  # fmt: skip


def _held(view: View, still: Standstill) -> Iterator[Output]:
    """What holds the requests. Gauges are published by steps: if they move, the engine steps and finds nothing
    that it may run, which is another cause unless what it holds is parked for something that never comes."""
    if still.parked is not None and still.parked >= 1 and still.running < 0.5:
        text = (
            f"{still.parked:.0f} requests are parked for something other than capacity, and none comes back"
        )
        yield stated("held", "waiting_deferred_requests", True, text, during=still.parked, unit="requests")
    elif not still.gauges_move:
        text = f"its gauges stand still at {still.running:.0f} running and {still.waiting:.0f} waiting: no step ends"
        yield stated("held", "running_requests", True, text, degree=1.0 if still.running >= 0.5 else 0.7)
    elif still.running < 0.5:
        text = "its gauges move while nothing runs: it steps, and finds nothing that it can admit"
        yield stated("held", "running_requests", False, text, degree=0.3 if still.parked is None else 0.0)
    if still.running < 0.5 and still.kv_usage is not None:
        full = still.kv_usage >= 0.9
        text = f"the pool is {quantity(still.kv_usage, 'ratio')} full, with nothing running"
        if full:
            yield stated("room", "kv_cache_usage_ratio", False, text + ": there is no room to admit anything")
    longest, pool = _longest(view, still), pool_tokens(view, still.instance)
    if longest is not None and pool is not None and longest > pool and still.running < 0.5:
        text = f"the longest prompt that waits has {quantity(longest, 'tokens')}, the pool {quantity(pool, 'tokens')}"
        yield stated("fits", "kv_capacity_tokens", False, text)


def _longest(view: View, still: Standstill) -> float | None:
    if view.workload is None:
        return None
    requests = view.workload.requests
    prompts = requests.prompt[held_up(requests, still)]
    return float(np.nanmax(prompts)) if np.isfinite(prompts).any() else None


def _asked(view: View, still: Standstill) -> Iterator[Output]:
    if view.workload is None:
        return
    sent, served = asked_of(view.workload.requests, still, view.case.step_seconds)
    if sent:
        text = f"clients sent {sent} requests meanwhile, and {served} got a first token"
        yield stated("asked", "first_tokens_per_second", served <= 0.1 * sent, text, during=float(served))
    elif not held_up(view.workload.requests, still).any():
        text = "no client waits for anything meanwhile: the gauges are left over"
        yield stated("asked", "first_tokens_per_second", False, text)


def _cards(view: View, still: Standstill) -> Iterator[Output]:
    """What the GPUs do in the silence, against before: one that stopped or spins speaks for it wherever it is."""
    found, here = series_here(view, "gpu_utilization_ratio")
    inside = Window(still.window.start + view.spans.look_back_seconds, still.window.end)
    seen = [one for series in found if (one := _card(view, series, inside)) is not None]
    if still.running < 0.5:  # a card that nobody gave work says nothing by being idle
        seen = [pair for pair in seen if pair[0] != "idle"]
    if not seen:
        return
    stopped = [text for state, text in seen if state != "works"]
    if stopped:
        yield here.judge(stated("cards", "gpu_utilization_ratio", True, stopped[0]))
    elif here.sure and len(seen) == 1:
        yield stated("cards", "gpu_utilization_ratio", False, seen[0][1])


def _card(view: View, busy: Series, inside: Window) -> tuple[str, str] | None:
    """Whether a card that was at work is idle, spins or works in the silence, and in words."""
    before, now = (_median(busy, w) for w in (view.spans.baseline, inside))
    if before is None or now is None or before < 3 * _IDLE:
        return None
    name = gpu_name(busy.labels)
    if now < _IDLE:
        return "idle", f"{name} is idle ({quantity(now, 'ratio')}; before: {quantity(before, 'ratio')})"
    watts = [s for s in view.case.of("gpu_power_watts") if s.labels == busy.labels]
    usual, drawn = (_median(watts[0], w) if watts else None for w in (view.spans.baseline, inside))
    if now >= _SPINS and usual is not None and drawn is not None and drawn < 0.7 * usual:
        numbers = f"{quantity(now, 'ratio')} busy at {quantity(drawn, 'watts')} (before: {quantity(usual, 'watts')})"
        return "spins", f"{name} is {numbers}: it spins without working"
    return "works", f"{name} works: {quantity(now, 'ratio')} busy (before: {quantity(before, 'ratio')})"


def _median(series: Series, window: Window) -> float | None:
    values = series.within(window)
    return float(np.nanmedian(values)) if np.isfinite(values).any() else None
