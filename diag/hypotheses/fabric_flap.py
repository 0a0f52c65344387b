"""Links of the fabric go down and up; KV transfers over them fail and are tried again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from diag.detectors.cues import PRESENT, Explained, Reach, degree_of, rises, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Mitigation, Series, Window
from diag.quantities import quantity

CARD = Card(
    id="fabric_flap",
    title="InfiniBand or RoCE links flap: KV transfers fail and are tried again",
    mechanism="A port loses its link for seconds; transfers on it time out, are retried and recomputed, buffers and requests pile up, and the service may overload itself.",
    signs=("link-down counts rise on a node", "transfer failures and retries follow", "requests wait for blocks that do not come"),
    rules_out=("no link went down, with the counters alive",),
    look_alikes={"kv_transfer_failure": "transfers fail with sound links", "stale_cache_peer": "look-ups miss, links are sound", "network_latency": "the path to the clients, not between engines"},
    mitigations=(
        Mitigation("Take the port or node with the flaps out of the transfer pool; others go on.", True),
        Mitigation("Lower retries, let failed transfers be recomputed at once; then clean or replace cable and optics.", False),
    ),
    next_check="ibstat and perfquery -x on the node; dmesg for link events, and their times beside the failed transfers.",
    chain=("node_infiniband_link_downs_per_second", "node_infiniband_port_state", "kv_transfer_failures_per_second", "kv_transfer_retries_per_second", "waiting_deferred_requests", "ttft_seconds_mean"),
    leads_to=("kv_transfer_failure", "engine_restart", "prefill_interference"),
)  # fmt: skip

NEEDS = (("node_infiniband_link_downs_per_second", "node_infiniband_port_state"),)

_LATE_SECONDS = 60.0
_FAILS = 0.3  # of the floor: transfers hardly ever fail


def examine(view: View) -> Iterator[Output]:
    """Links that went down, and somebody who felt it: transfers, or an engine that died of it."""
    downs = _most(view, view.case.of("node_infiniband_link_downs_per_second"))
    state = min(view.each.get("node_infiniband_port_state", ()), key=lambda f: f.effect, default=None)
    if downs is None and state is None:
        return
    yield _downs(view, downs, state)
    if (downs is None or downs[1] < 0.5) and (state is None or state.effect > -1):
        return
    first = downs[3] if downs is not None else None
    if first is not None:
        yield _since_then(view, first)
    yield from _harm(view)
    node = downs[0].labels.get("node", "") if downs is not None and downs[1] >= 0.5 else ""
    node = node or (state.labels.get("node", "") if state is not None else "")
    yield Reach({"nodes": (node,) if node else (), "instances": _partners(view)})


def _partners(view: View) -> tuple[str, ...]:
    """Everybody who fetches over the fabric while transfers fail: one host's link is each partner's way."""
    failed = view.fleet.get("kv_transfer_failures_per_second")
    if failed is None or failed.effect < _FAILS:
        return ()
    found = view.each.get("kv_transfer_failures_per_second", ())
    return tuple(sorted({f.labels["instance"] for f in found if f.labels.get("instance")}))


def _most(view: View, found: Sequence[Series]) -> tuple[Series, float, float, float | None] | None:
    """The node with the most links down since shortly before the onset: count, count before, first time."""
    best: tuple[Series, float, float, float | None] | None = None
    since = view.onset - view.spans.look_back_seconds - _LATE_SECONDS
    for series in found:
        now = _count(series, Window(since, view.spans.incident.end))
        before = _count(series, Window(view.spans.baseline.start, since))
        at = np.flatnonzero((np.nan_to_num(series.values) > 0) & (series.times >= since))
        first = float(series.times[at[0]]) if len(at) else None
        if best is None or now > best[1]:
            best = (series, now, before, first)
    return best


def _count(series: Series, span: Window) -> float:
    """Events behind a rate: its sum over the grid."""
    if len(series.times) < 2:
        return 0.0
    step = float(np.median(np.diff(series.times)))
    return float(np.nansum(series.within(span))) * step


def _downs(
    view: View, downs: tuple[Series, float, float, float | None] | None, state: Finding | None
) -> Output:
    if downs is not None and downs[1] >= 0.5:
        series, now, before, first = downs
        span = (view.spans.incident.seconds, max(view.spans.baseline.seconds, 1.0))
        usual = before * span[0] / span[1]
        degree = degree_of(np.log((now + 0.5) / (usual + 0.5)) / np.log(2.5))
        if first is not None and abs(first - view.onset) <= _LATE_SECONDS:
            # One flap in the very minute of the onset: how often would their usual rate do that by chance?
            chance = 1.0 - float(np.exp(-2 * _LATE_SECONDS * before / span[1]))
            degree = max(degree, 1.0 - 2.5 * chance)
        text = (
            f"links of {series.labels.get('node', 'a node')} went down {now:.0f} times (before: {before:.0f})"
        )
        return stated("downs", series.signal, degree >= 0.5, text, degree=degree, onset=first)
    if state is not None and state.effect <= -1:
        text = f"ports of {state.labels.get('node', 'a node')} left the active state"
        return stated("downs", state.signal, True, text, degree=degree_of(-state.effect), onset=state.onset)
    seen = downs[0].within(view.spans.incident) if downs is not None else np.empty(0)
    sure = len(seen) > 0 and float(np.isfinite(seen).mean()) >= PRESENT
    text = "no link went down"
    return stated("downs", "node_infiniband_link_downs_per_second", False, text, decisive=sure)


def _since_then(view: View, first: float) -> Output:
    slack = view.spans.look_back_seconds + _LATE_SECONDS
    true = first <= view.onset + slack
    wait = quantity(abs(view.onset - first), "seconds")
    text = f"the first link went down {wait} {'before' if first <= view.onset else 'after'} users felt it"
    return stated(
        "since_then", "node_infiniband_link_downs_per_second", true, text, degree=0.9 if true else 0.1
    )


def _harm(view: View) -> Iterator[Output]:
    failed = view.fleet.get("kv_transfer_failures_per_second")
    retried = view.fleet.get("kv_transfer_retries_per_second")
    if failed is not None:
        yield rises("transfers", failed, "failed KV transfers", smallest=_FAILS)
        if failed.effect >= _FAILS:
            yield Explained(0.7)
    if retried is not None and retried.effect >= 1:
        yield rises("retries", retried, "requests begun anew after a failed transfer")
    died = [c for c in view.changes if c.kind == "restart" and view.near_onset(c) and view.concerns(c.target)]
    # Where nobody counts transfers, that no engine died says nothing either way.
    if died and (failed is None or failed.effect < _FAILS):
        wait = quantity(abs(died[0].time - view.onset), "seconds")
        yield stated("engine_died", "target_up", True, f"{died[0].text}, {wait} from the onset", degree=0.8)
