"""What the rooms of traffic and engine make of things that look like what they are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.model import Event, Evidence, Stance, State

from .conftest import AT, POINTS, STEP, Played, World

Play = Callable[[Callable[[World], None]], Played]

LATE = np.arange(POINTS) >= AT


def said(played: Played, id: str, cue: str) -> Evidence:
    return next(e for e in played.of(id).evidence if e.cue == cue)


@pytest.mark.parametrize("marked", [True, False])
def test_a_smaller_pool_is_a_change_only_where_somebody_made_one(marked: bool, play: Play) -> None:
    def smaller(w: World) -> None:
        w.clients()
        w.slow(phase="queue")
        w.states("kv_capacity_tokens", "100000", "20000")
        w.values("kv_cache_usage_ratio", np.where(LATE, 0.995, 0.2))
        w.goes("preemptions_per_second", 0.0, 2.0)
        if marked:
            w.events.append(Event(w.onset - STEP, "config", "e0", "gpu_memory_utilization lowered"))

    played = play(smaller)
    assert played.verdict.leading == ("config_change" if marked else "kv_cache_exhaustion")
    assert (said(played, "config_change", "setting").stance is Stance.FOR) is marked


def test_what_the_queue_grew_by_has_arrived(play: Play) -> None:
    """Without records first tokens are all that is seen of arrivals, and they come as fast as they can."""

    def more_than_is_served(w: World) -> None:
        w.slow(seconds=20.0, phase="queue")
        w.values("waiting_requests", np.where(LATE, (np.arange(POINTS) - AT) * STEP * 0.4, 0.0))

    rate = said(play(more_than_is_served), "load_burst", "rate")
    assert rate.stance is Stance.FOR
    assert rate.during == pytest.approx(0.9, rel=0.1)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_ceiling_that_blurs_is_not_ruled_out(share: float, play: Play) -> None:
    def nearly_pinned(w: World) -> None:
        w.slow(phase="queue")
        w.goes("waiting_requests", 0.0, 6.0)
        at_most = np.arange(POINTS) % 10 < 10 * share
        w.values("running_requests", np.where(LATE, np.where(at_most, 8.0, 6.0), 4.0))

    pinned = said(play(nearly_pinned), "sequence_limit", "pinned")
    assert pinned.stance is Stance.AGAINST
    assert pinned.decisive is (share < 0.5)


def test_whoever_is_parked_waits_as_well(play: Play) -> None:
    def parked(w: World) -> None:
        w.slow(phase="queue")
        w.goes("grammar_queue_requests", 0.5, 12.0)

    assert play(parked).of("sequence_limit").state is not State.RULED_OUT


def test_a_pool_is_full_when_the_next_prompt_does_not_fit(play: Play) -> None:
    def long_prompts(w: World) -> None:
        w.slow(phase="queue")
        w.goes("waiting_requests", 0.0, 2.0)
        w.states("kv_capacity_tokens", "100000")
        w.goes("prompt_tokens_per_request_mean", 30_000.0, 30_000.0)
        w.goes("kv_cache_usage_ratio", 0.3, 0.8)

    full = said(play(long_prompts), "kv_cache_exhaustion", "full")
    assert full.stance is Stance.FOR
    assert "does not fit" in full.text


def test_blocks_that_nobody_shares_any_more_are_no_leak(play: Play) -> None:
    def unshared(w: World) -> None:
        w.slow(phase="prefill")
        w.goes("prefix_cache_hit_ratio", 0.8, 0.02)
        w.values(
            "kv_cache_usage_ratio", np.where(LATE, np.minimum(0.3 + (np.arange(POINTS) - AT) / 60, 0.97), 0.2)
        )

    played = play(unshared)
    assert said(played, "kv_block_leak", "shared_still").stance is Stance.AGAINST
    assert played.verdict.leading == "prefix_cache_broken"


def test_a_tenant_that_sends_no_more_does_not_dominate(play: Play) -> None:
    def longer(w: World) -> None:
        w.slow(phase="prefill")
        w.clients("before")
        w.clients("during", prompt_tokens=lambda i: 9000 if i % 3 == 1 else 700)

    more = said(play(longer), "tenant_dominance", "more")
    assert more.stance is Stance.AGAINST
