"""The KV connector's transfers fail or expire."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import Explained, Reach, rises, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="kv_transfer_failure",
    title="KV transfers between engines fail or expire",
    mechanism="Blocks that one engine computed do not reach the one that waits for them: the transfer fails, or the lease runs out first; the request waits, and then computes its prompt again.",
    signs=("failed or expired transfers are counted", "requests wait for transfers, or prefill again", "the links are sound"),
    rules_out=("the counters of failed transfers rest",),
    look_alikes={"fabric_flap": "a link went down: then that is the root", "stale_cache_peer": "look-ups of keys that are not there", "prefix_cache_broken": "local hits fall, transfers are sound"},
    mitigations=(
        Mitigation("Let failed loads be recomputed (kv_load_failure_policy) and take the failing pair out of the pool.", True),
        Mitigation("Raise the lease and the transfer's timeout above the decode side's backlog; check versions and permissions of both ends.", False),
    ),
    next_check="The engines' logs for 'KV Transfer metrics' and 'expired' by pair of engines: one pair, one host, or all.",
    chain=("kv_transfer_failures_per_second", "kv_transfer_retries_per_second", "kv_transfer_seconds_mean", "waiting_deferred_requests", "prefill_seconds_mean", "ttft_seconds_mean"),
    leads_to=("prefill_interference", "prefix_cache_broken"),
)  # fmt: skip

NEEDS = (("kv_transfer_failures_per_second",),)


def examine(view: View) -> Iterator[Output]:
    """Failures, what they cost, and whether something deeper brings them about."""
    failed = view.fleet.get("kv_transfer_failures_per_second")
    if failed is None:
        return
    yield rises("failures", failed, "failed or expired KV transfers", smallest=0.3)
    if failed.effect < 0.3:
        return
    ended = view.fleet.get("kv_transfers_per_second")
    if ended is not None and ended.during + failed.during > 0:
        share = failed.during / (ended.during + failed.during)
        text = f"{quantity(share, 'ratio')} of all transfers fail"
        yield stated("share", failed.signal, share >= 0.05, text, degree=min(1.0, share / 0.1))
    slower = view.fleet.get("kv_transfer_seconds_mean")
    if slower is not None and slower.effect >= 1:
        yield rises("slower", slower, "time of a transfer")
    yield from _cost(view)
    yield from _deeper(view)
    hit = [f for f in view.each.get(failed.signal, ()) if f.effect >= 0.3]
    yield Reach({"instances": tuple(f.labels["instance"] for f in hit if f.labels.get("instance"))})


def _cost(view: View) -> Iterator[Output]:
    """The harm is a late first token: parked, or prefilled again."""
    parked = view.fleet.get("waiting_deferred_requests")
    if parked is not None and parked.effect >= 1:
        yield rises("parked", parked, "requests parked for a transfer")
    engine = view.fleet.get("ttft_seconds_mean")
    if engine is not None:
        yield rises("late", engine, "the engine's own first-token time")
        if engine.effect >= 1:
            yield Explained(0.6)


def _deeper(view: View) -> Iterator[Output]:
    downs = view.each.get("node_infiniband_link_downs_per_second", ())
    if downs:
        most = max(downs, key=lambda f: f.effect)
        sound = most.during <= most.before + 1e-9 and most.peak <= most.before + 1e-9
        text = "no link went down meanwhile" if sound else "links went down meanwhile"
        yield stated("links_sound", most.signal, sound, text, degree=1.0 if sound else 0.1)
    misses = view.fleet.get("kv_lookup_misses_per_second")
    if misses is not None:
        true = misses.effect >= 1
        text = (
            "look-ups miss keys that were believed to be there" if true else "look-ups find what they expect"
        )
        yield stated("keys_there", misses.signal, not true, text, degree=0.2 if true else 1.0)
