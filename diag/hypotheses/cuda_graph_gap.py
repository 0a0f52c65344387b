"""Decode leaves the batch sizes that have a CUDA graph, or runs eager: every step takes longer.

Longer steps keep more requests resident, so that the batch stays above the size that began it: the slow
state keeps itself alive at a load that was fine before."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from diag.detectors.batches import Batches, batches_of, equal_ratio
from diag.detectors.cues import PRESENT, Reach, stated
from diag.detectors.gpus import worst as worst_gpu
from diag.detectors.pool import number_of_fact
from diag.detectors.service import slower
from diag.detectors.standstill import seen_ratio
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
_STEP = 1.25
_EAGER_WORDS = re.compile(r"\beager\b|cuda[ _-]?graph", re.IGNORECASE)


def examine(view: View) -> Iterator[Output]:
    """The step in the time between tokens, what is known of graphs, and what else would slow a step."""
    where = view.affected or tuple(sorted(view.engines))
    size = _captured(view, where[0] if where else "")
    found = [b for one in where if (b := batches_of(view, one, size)) is not None]
    worst = max(found, key=lambda b: b.jump if np.isfinite(b.jump) else 0.0, default=None)
    never = _never(view)
    if never is not None:
        yield never
        return
    yield from _eager(view)
    if worst is not None and np.isfinite(worst.jump):
        yield _step(worst, size)
        if worst.jump >= _STEP:
            yield Reach({"instances": (worst.instance,)})
    if size is not None and worst is not None:
        yield _beyond(view, worst, size)
    if worst is not None:
        yield from _below(view, worst)
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


def _captured(view: View, instance: str) -> float | None:
    """The largest batch of requests with a graph."""
    tokens = number_of_fact(view, "cuda_graph_tokens_max", instance)
    return tokens / (1 + (number_of_fact(view, "speculative_tokens", instance) or 0.0)) if tokens else None


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
    text = f"above {named} of {batches.size:.0f} requests tokens take ×{batches.jump:.2f} what smaller batches foretell ({quantity(batches.below, 'seconds')} → {quantity(batches.above, 'seconds')})"
    true = batches.jump >= _STEP
    # A size that was searched for is found by chance now and then; one that was stated is not.
    degree = (
        min(1.0, (0.6 if size is None else 0.8) + (batches.jump - _STEP))
        if true
        else max(0.0, 0.8 * (batches.jump - 1.0))
    )
    return stated(
        "step", "inter_token_seconds_mean", true, text, before=batches.below, during=batches.above, unit="seconds",
        degree=degree, decisive=size is not None and batches.jump < 1.08,
    )  # fmt: skip


def _beyond(view: View, batches: Batches, size: float) -> Output:
    text = f"graphs are captured up to {size:.0f} requests; {quantity(batches.beyond, 'ratio')} of the incident lies above it (before: {quantity(batches.beyond_before, 'ratio')})"
    whole = seen_ratio(view, "running_requests") >= PRESENT
    return stated(
        "beyond", "running_requests", batches.beyond > batches.beyond_before + 0.05, text, before=batches.beyond_before,
        during=batches.beyond, unit="ratio", decisive=whole and batches.beyond == 0.0 and view.fact("cuda_graphs") == "on",
    )  # fmt: skip


def _below(view: View, batches: Batches) -> Iterator[Output]:
    """At a batch that has its graph the machine is as fast as before."""
    ratio = equal_ratio(view, batches.instance, "inter_token_seconds_mean", most=batches.size)
    if ratio is not None:
        text = f"at equal batches below that size tokens take ×{ratio:.2f} what they took"
        yield stated("below_flat", "inter_token_seconds_mean", ratio < 1.15, text)
