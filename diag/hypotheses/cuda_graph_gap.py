"""Decode leaves the batch sizes that have a CUDA graph, or runs eager: every step takes longer.

Longer steps keep more requests resident, so that the batch stays above the size that began it: the slow
state keeps itself alive at a load that was fine before."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from diag.detectors.batches import BLUR, Batches, batches_of, equal_ratio, pace_since
from diag.detectors.changes import Change
from diag.detectors.cues import PRESENT, Reach, stated
from diag.detectors.gpus import worst as worst_gpu
from diag.detectors.idling import idling_of, late_host
from diag.detectors.pool import number_of_fact
from diag.detectors.service import slower
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="cuda_graph_gap",
    title="Decode runs without CUDA graphs",
    mechanism="Graphs are captured for batches up to a size, in tokens: with speculation a request counts several times. A larger batch, or eager mode, launches every kernel by itself; steps take a multiple, the batch stays large, and the state keeps itself alive.",
    signs=(
        "time between tokens steps up when the batch crosses a size, and not with length or KV",
        "it does not come back at the load that was fine before",
        "the card waits between kernels while the batch grows",
        "start-up log: truncated capture sizes, enforce_eager; SGLang: decode passes without a graph",
    ),
    rules_out=("time between tokens does not depend on the batch", "decode always ran in graphs, or never did"),
    look_alikes={"slow_gpu": "slow at every batch size", "load_burst": "the queue grows; here it may be empty", "spec_decode_collapse": "fewer tokens per step, not longer steps", "config_change": "a deploy that turned graphs off"},
    mitigations=(
        Mitigation("Let the batch drain once, or cap requests in flight below the captured size.", True),
        Mitigation("Capture up to max_num_seqs × (1 + speculative tokens): --compilation-config cudagraph_capture_sizes, SGLang --cuda-graph-max-bs.", False),
    ),
    next_check="Compare the largest captured size in the start-up log with max_num_seqs × (1 + speculative tokens).",
    chain=("running_requests", "eager_decode_ratio", "inter_token_seconds_mean", "decode_seconds_mean", "e2e_seconds_mean"),
)  # fmt: skip

NEEDS = (("inter_token_seconds_mean", "eager_decode_ratio"), ("running_requests",))
_STEP = 1.15
_AFTER = 0.3  # of an incident: a restart later than that did not begin it
_WITH_SECONDS = 300.0  # around a start: a change that was marked with it
_EAGER_WORDS = re.compile(r"\beager\b|cuda[ _-]?graph", re.IGNORECASE)


def examine(view: View) -> Iterator[Output]:
    """The step in the time between tokens, what is known of graphs, and what else would slow a step."""
    where = view.affected or tuple(sorted(view.engines))
    worst, size = _steps(view, where)
    never = _never(view)
    if never is not None:
        yield never
        return
    yield from _eager(view)
    restarts = _restarts(view, where)
    if restarts:
        yield from _since_restart(view, restarts)
    elif worst is not None:
        if np.isfinite(worst.jump):
            yield _step(worst, size)
        if size is not None:
            yield _beyond(worst, size)
            yield from _below(view, worst)
        if worst.jump >= _STEP:
            yield Reach({"instances": (worst.instance,)})
    yield from _gaps(view)
    if restarts:
        yield from _otherwise(view, restarts[0])
    clock = worst_gpu(view, "gpu_sm_clock_hertz", -1)
    if clock is not None:
        yield stated(
            "clock_held",
            clock.signal,
            clock.effect > -1,
            "the SM clock held"
            if clock.effect > -1
            else "the SM clock fell, which lengthens steps by itself",
            before=clock.before,
            during=clock.during,
            unit="hertz",
        )
    speed = slower(view)
    if speed is not None:
        yield stated(
            "slower",
            "inter_token_seconds_mean",
            speed[0] >= 1.2,
            f"time between tokens ×{speed[0]:.2f} ({speed[1]})",
        )
    elif worst is None:
        yield stated(
            "step", "inter_token_seconds_mean", False, "batches differ too little to see a step", degree=0.4
        )


def _steps(view: View, where: tuple[str, ...]) -> tuple[Batches | None, float | None]:
    """The clearest step, at the captured size where that is known, and that size in requests.

    Sizes are stated in tokens; with speculation a request takes several, and some state them in requests."""
    found: list[tuple[Batches, float | None]] = []
    for one in where:
        tokens = number_of_fact(view, "cuda_graph_tokens_max", one)
        each = 1 + (number_of_fact(view, "speculative_tokens", one) or 0.0)
        sizes = dict.fromkeys([tokens / each, tokens]) if tokens else [None]
        found += [(b, size) for size in sizes if (b := batches_of(view, one, size)) is not None]
    return max(found, key=lambda pair: (pair[0].stands_out, pair[0].beyond), default=(None, None))


def _restarts(view: View, where: tuple[str, ...]) -> list[Change]:
    """New processes that may have begun it."""
    latest = view.onset + _AFTER * view.spans.incident.seconds
    return [
        c
        for c in view.changes
        if c.kind == "restart"
        and c.target in where
        and (view.near_onset(c) or view.onset <= c.time <= latest)
    ]


def _never(view: View) -> Output | None:
    """Eager since before the trouble: nothing to fall out of."""
    before, now = view.fact("cuda_graphs", view.spans.baseline.start), view.fact("cuda_graphs")
    if before != "off" or now != "off" or any(f.value == "on" for f in view.case.facts_named("cuda_graphs")):
        return None
    return stated(
        "step",
        "inter_token_seconds_mean",
        False,
        "it runs eager since before the trouble: there are no graphs to leave",
        decisive=True,
    )


def _eager(view: View) -> Iterator[Output]:
    counted = view.fleet.get("eager_decode_ratio")
    if counted is not None:
        text = f"{quantity(counted.during, 'ratio')} of decode steps run without a graph (before: {quantity(counted.before, 'ratio')})"
        yield stated(
            "eager", counted.signal, counted.effect >= 1, text, before=counted.before, during=counted.during, unit="ratio",
            onset=counted.onset, decisive=counted.peak < 0.02 and counted.present_ratio >= PRESENT,
        )  # fmt: skip
        return
    off = [
        f
        for f in view.case.facts_named("cuda_graphs")
        if f.value == "off" and f.since is not None and f.since >= view.case.window.start
    ]
    if off and any(f.value == "on" for f in view.case.facts_named("cuda_graphs")):
        yield stated(
            "eager",
            "inter_token_seconds_mean",
            True,
            "it was started anew with graphs off (enforce_eager)",
            onset=off[-1].since,
        )
        return
    named = [
        c
        for c in view.changes
        if c.kind == "event"
        and view.near_onset(c)
        and view.concerns(c.target)
        and _EAGER_WORDS.search(c.text)
    ]
    if named:
        text = f"a change names it: {named[-1].text}"
        yield stated("eager", "inter_token_seconds_mean", True, text, degree=0.9, onset=named[-1].time)


def _step(batches: Batches, size: float | None) -> Output:
    named = "the largest captured batch" if size is not None else "a batch"
    text = f"above {named} of {batches.size:.0f} requests tokens take ×{batches.jump:.2f} what batch and prefill make of it ({quantity(batches.below, 'seconds')} → {quantity(batches.above, 'seconds')})"
    # A size that was searched for is found by chance now and then; one that was stated is not.
    sure = 3.0 if size is not None else 6.0
    true = batches.jump >= _STEP and batches.stands_out >= sure
    degree = 0.95 if true and size is not None else 0.8 if true else max(0.0, min(0.45, batches.jump - 1.0))
    return stated(
        "step", "inter_token_seconds_mean", true, text, before=batches.below, during=batches.above, unit="seconds",
        degree=degree, decisive=size is not None and batches.jump + 2 * batches.error < 1.1 and batches.beyond > 0.2,
    )  # fmt: skip


def _beyond(batches: Batches, size: float) -> Output:
    text = f"graphs are captured up to {size:.0f} requests; {quantity(batches.beyond, 'ratio')} of the incident lies above it (before: {quantity(batches.beyond_before, 'ratio')})"
    true = batches.beyond > batches.beyond_before + 0.05
    return stated(
        "beyond",
        "running_requests",
        true,
        text,
        before=batches.beyond_before,
        during=batches.beyond,
        unit="ratio",
    )


def _below(view: View, batches: Batches) -> Iterator[Output]:
    """At a batch that has its graph the machine is as fast as before; a gauge near the size hides some that have
    none, so that a part of the step may be left there."""
    ratio = equal_ratio(view, batches.instance, "inter_token_seconds_mean", most=(1 - BLUR) * batches.size)
    if ratio is not None:
        text = f"at equal batches below that size tokens take ×{ratio:.2f} what they took"
        whole = max(batches.jump - 1.0, _STEP - 1.0) if np.isfinite(batches.jump) else _STEP - 1.0
        degree = min(max(1.0 - 0.5 * (ratio - 1.0) / (0.6 * whole), 0.0), 1.0)
        yield stated("below_flat", "inter_token_seconds_mean", degree >= 0.5, text, degree=degree)


def _gaps(view: View) -> Iterator[Output]:
    """Kernels that are launched one by one leave the card waiting between them; a full batch, a full pool or a
    slow card does not, and a halt leaves it busy in between."""
    idle = idling_of(view)
    if idle is None:
        return
    true = idle.degree >= 0.5 and idle.full_ratio < 0.5
    yield stated(
        "gaps", "gpu_utilization_ratio", true, idle.text, before=1 - idle.before, during=1 - idle.during, unit="ratio",
        degree=idle.degree * (1 - idle.full_ratio),
    )  # fmt: skip


def _since_restart(view: View, restarts: list[Change]) -> Iterator[Output]:
    """A start-up that captured no graphs tells nobody; decode is slower from then on at every batch, and prefill,
    which runs without graphs anyway, is not."""
    where = restarts[0].target
    found = pace_since(view, where, restarts[0].time)
    if found is None:
        return
    pace, error = found
    true = pace >= 1.2 and pace - 1.0 > 3 * error
    text = f"since {where} started anew tokens take ×{pace:.2f} what batch and prefill make of it"
    degree = min(1.0, 0.6 + (pace - 1.2)) if true else 0.2
    yield stated(
        "since_restart", "inter_token_seconds_mean", true, text, degree=degree, onset=restarts[0].time
    )
    prefill = _prefill_ratio(view)
    if prefill is not None and true:
        share = max(prefill - 1.0, 0.0) / (pace - 1.0)  # a step that prefills decodes, too
        text = f"prefill of equal length takes ×{prefill:.2f}, tokens ×{pace:.2f}"
        yield stated(
            "prefill_holds",
            "prefill_seconds_mean",
            share < 0.7,
            text,
            degree=min(max(1.0 - share / 1.4, 0.05), 0.95),
        )


def _otherwise(view: View, restart: Change) -> Iterator[Output]:
    """What else a start can leave behind: a process far from its card or short of CPU, which launches its steps
    late, too; and whatever else was changed with it."""
    late = late_host(view)
    if late is not None:
        yield stated("host_clean", late.signal, not late.moved, late.text)
    marked = [c for c in view.changes if c.kind == "event" and abs(c.time - restart.time) <= _WITH_SECONDS]
    other = [c for c in marked if view.concerns(c.target) and not _EAGER_WORDS.search(c.text)]
    if other:
        text = f"a change came with that start and says nothing of graphs: {other[-1].text}"
        yield stated("only_change", "inter_token_seconds_mean", False, text)


def _prefill_ratio(view: View) -> float | None:
    """How many times longer a prefill of equal length takes; None where it is not known."""
    seconds, tokens = (
        view.fleet.get("prefill_seconds_mean"),
        view.fleet.get("computed_tokens_per_request_mean"),
    )
    if seconds is None or tokens is None or min(seconds.before, tokens.before, tokens.during) <= 0:
        return None
    return (seconds.during / seconds.before) * (tokens.before / tokens.during)
