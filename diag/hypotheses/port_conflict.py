"""Start-up finds its port taken, and the process dies instead of trying another.

It looks like any start-up failure from outside: no scrape answers, again and again. Only the log says why.
"""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.changes import Outage
from diag.detectors.cues import PRESENT, Reach, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Event, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="port_conflict",
    title="A port is taken: start-up fails again and again",
    mechanism="The engine, or a client that it starts (a transfer engine on a random port), finds its port in use and exits instead of trying another; the supervisor starts it again into the same clash.",
    signs=("bind failures in the log (address already in use)", "start after start, none of them serves", "another process, or the one before, still holds the port"),
    rules_out=("it binds and serves throughout",),
    look_alikes={"engine_restart": "one start, and it serves", "gpu_hardware_fault": "start-up fails for want of a GPU", "config_change": "start-up fails for a setting"},
    mitigations=(
        Mitigation("Find who holds the port (ss -ltnp) and end a left-over process of the same engine.", True),
        Mitigation("Keep traffic on the other replicas.", True),
        Mitigation("Give every process on the host a port range of its own, outside the ephemeral range (net.ipv4.ip_local_port_range).", False),
    ),
    next_check="ss -ltnp on the host for the port that the last start-up lines name.",
    chain=("target_up", "http_errors_per_second", "error_ratio", "ttft_seconds_p95"),
    leads_to=("engine_restart", "load_burst", "routing_hotspot", "prefill_interference"),
)  # fmt: skip

NEEDS = (("target_up",), ("engine_start_time_seconds",))
_BEFORE_SECONDS = 300.0


def examine(view: View) -> Iterator[Output]:
    """Bind failures, the outage they keep open, and how often it was tried."""
    failed = [e for e in view.case.events if e.kind == "bind_failure" and _timely(view, e)]
    # One that does not come up is slow nowhere itself: those that carry its load are.
    down = [o for o in view.outages if o.window.end >= view.onset - _BEFORE_SECONDS and _is_engine(view, o)]
    if not failed:
        yield _none(view, down)
        return
    first = failed[0]
    tries = len(failed)
    text = f"{first.target or 'the engine'} could not bind: {first.text}" + (
        f" ({tries} times)" if tries > 1 else ""
    )
    yield stated("bind", "target_up", True, text, onset=first.time)
    if down:
        longest = max(down, key=lambda o: o.window.seconds)
        near = any(_near(longest, e) for e in failed)
        text = f"{longest.target} answered no scrape for {quantity(longest.window.seconds, 'seconds')}"
        yield stated(
            "outage",
            "target_up",
            near,
            text + ("" if near else ", at another time"),
            onset=longest.window.start,
        )
        yield Reach({"instances": view.engines_named([longest.target])})
    else:
        yield stated(
            "outage", "target_up", False, "every scrape was answered: what could not bind is not what serves"
        )
    yield stated(
        "again",
        "engine_start_time_seconds",
        tries >= 2,
        f"{tries} start-ups failed to bind",
        degree=min(1.0, tries / 3),
    )


def _is_engine(view: View, outage: Outage) -> bool:
    return outage.target in view.engines or not view.engines


def _timely(view: View, event: Event) -> bool:
    return view.onset - _BEFORE_SECONDS <= event.time <= view.spans.incident.end


def _near(outage: Outage, event: Event) -> bool:
    return outage.window.start - 120 <= event.time <= outage.window.end + 60


def _none(view: View, down: list[Outage]) -> Output:
    started, up = view.fleet.get("engine_start_time_seconds"), view.fleet.get("target_up")
    whole = all(f is not None and f.present_ratio >= PRESENT for f in (started, up))
    began = [c for c in view.changes if c.kind == "restart" and view.spans.incident.contains(c.time)]
    if down or began:
        text = "no log line tells of a port that is taken"
        return stated("bind", "target_up", False, text, degree=0.0 if _logged(view) else 0.3)
    return stated(
        "bind",
        "target_up",
        False,
        "the engine is bound and serves: every scrape was answered",
        decisive=whole,
    )


def _logged(view: View) -> bool:
    """Whether the engines' log was read at all, so that a bind failure would have been seen."""
    return any(f.source.startswith("log") for f in view.case.facts) or any(
        not e.marked for e in view.case.events
    )
