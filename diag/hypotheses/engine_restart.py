"""A crash or restart: lost work, cold caches, warm-up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.changes import Change, Outage
from diag.detectors.cues import PRESENT, Explained, Reach, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation, Window
from diag.quantities import quantity

CARD = Card(
    id="engine_restart",
    title="The engine restarted: requests lost, caches cold",
    mechanism="The process died or was restarted; requests in flight were lost, and until caches and kernels are warm every prompt is computed in full.",
    signs=("process start time changes, counters begin at zero", "scrapes fail for a while", "errors first, then cold-cache prefill for some minutes"),
    rules_out=("the start time is constant and every scrape succeeded",),
    look_alikes={"config_change": "restarted with other settings: it does not pass by itself", "gpu_hardware_fault": "what made it crash", "port_conflict": "it restarts again and again"},
    mitigations=(
        Mitigation("Keep traffic on the other replicas until the cache is warm.", True),
        Mitigation("Find the reason in the last lines before the start-up banner of its log.", True),
    ),
    next_check="Read the engine's log above the last start-up banner, and the container's last exit code.",
    chain=("target_up", "error_ratio", "prefix_cache_hit_ratio", "prefill_seconds_mean", "ttft_seconds_mean"),
    leads_to=("prefix_cache_broken", "prefill_interference"),
)  # fmt: skip

NEEDS = (("engine_start_time_seconds", "target_up"),)

_WARM_SECONDS = 300.0
_BEFORE_SECONDS = 120.0  # a restart this long before the symptom may still be its cause: caches are cold


def examine(view: View) -> Iterator[Output]:
    """A new process near the onset, an outage, and whether settings explain it better."""
    restarts = [
        c for c in view.changes if c.kind == "restart" and view.concerns(c.target) and _timely(view, c)
    ]
    outages = [
        o for o in view.outages if _is_engine(view, o.target) and o.window.end >= view.onset - _BEFORE_SECONDS
    ]
    gone = [o for o in outages if o.window.end >= view.case.window.end - 3 * view.case.step_seconds]
    if not restarts and not (gone and view.symptomatic):
        yield _none(view, outages)
        return
    if restarts:
        text = ", ".join(dict.fromkeys(c.text for c in restarts))
        yield stated("restarted", "engine_start_time_seconds", True, text, onset=restarts[0].time)
    else:
        text = f"{gone[0].target} stopped answering and has not come back"
        yield stated("restarted", "target_up", True, text, degree=0.9, onset=gone[0].window.start)
    if outages:
        down = outages[0].window
        text = f"{outages[0].target} answered no scrape for {quantity(down.seconds, 'seconds')}"
        yield stated("outage", "target_up", True, text, onset=down.start)
    errors = view.finding("error_ratio")
    if errors is not None:
        yield stated(
            "errors",
            errors.signal,
            errors.during > errors.before + 0.02,
            f"{quantity(errors.during, 'ratio')} of requests failed (before: {quantity(errors.before, 'ratio')})",
            before=errors.before,
            during=errors.during,
            unit="ratio",
        )
    near = [c for c in view.changes if view.near_onset(c) and view.concerns(c.target)]
    changed = [c for c in near if c.kind == "fact"]
    marked = [c for c in near if c.kind == "event" and c.signal in ("config", "deploy")]
    if changed or marked:
        yield stated(
            "same_settings",
            "kv_capacity_tokens",
            False,
            f"it came back with a change: {(changed or marked)[0].text}",
        )
    else:
        yield stated("same_settings", "kv_capacity_tokens", True, "it came back with the same settings")
        if outages:
            yield Explained(0.8)
    yield from _passes(view, [c.time for c in restarts])
    yield Reach({"instances": view.engines_named([c.target for c in restarts] or [o.target for o in gone])})


def _passes(view: View, starts: list[float]) -> Iterator[Output]:
    """Caches and kernels are warm after some minutes; steps that stay longer have another cause."""
    late = Window(max(starts, default=view.spans.incident.end) + _WARM_SECONDS, view.spans.incident.end)
    if late.seconds < 2 * view.spans.look_back_seconds:
        return
    chosen = view.affected or tuple(view.engines)
    for series in view.case.of("inter_token_seconds_mean"):
        before, after = series.within(view.spans.baseline), series.within(late)
        if series.labels.get("instance") not in chosen or not np.isfinite(after).any():
            continue
        if not np.isfinite(before).any() or np.nanmedian(before) <= 0:
            continue
        ratio = float(np.nanmedian(after) / np.nanmedian(before))
        degree = max(0.0, min(1.0, 0.5 + (1.15 - ratio) / 0.2))
        wait = quantity(_WARM_SECONDS, "seconds")
        text = f"{wait} after it the time between tokens is ×{ratio:.2f} of what it was"
        yield stated("passes", series.signal, degree >= 0.5, text, degree=degree)
        return


def _timely(view: View, change: Change) -> bool:
    return view.near_onset(change, _BEFORE_SECONDS) or view.spans.incident.contains(change.time)


def _is_engine(view: View, target: str) -> bool:
    return view.concerns(target) and (target in view.engines or not view.engines)


def _none(view: View, outages: list[Outage]) -> Output:
    started, up = view.fleet.get("engine_start_time_seconds"), view.fleet.get("target_up")
    constant = started is not None and started.present_ratio >= PRESENT
    text = "no restart of a slow engine is seen"
    if constant and started is not None:
        text = f"the engine runs since {quantity(started.during, 'unix seconds')}, and answered its scrapes"
    # A peer that went away makes those slow that took its work over.
    anywhere = view.outages or any(c.kind == "restart" for c in view.changes)
    decisive = constant and (up is None or not outages) and not anywhere
    return stated("restarted", "engine_start_time_seconds", False, text, decisive=decisive)
