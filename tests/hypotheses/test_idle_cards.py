"""A card that waits for its host, and what the rooms make of who keeps it waiting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.model import Event, Evidence, Stance

from .conftest import AT, GPU, POINTS, Played, World
from .engine_scenes import a_batch_beyond_the_captured_size, a_prompt_larger_than_the_pool
from .scenes import a_new_process, during

Play = Callable[[Callable[[World], None]], Played]


def said(played: Played, id: str, cue: str) -> Evidence:
    return next(e for e in played.of(id).evidence if e.cue == cue)


def cues(played: Played, id: str) -> set[str]:
    return {e.cue for e in played.of(id).evidence}


def idles(w: World, share: float) -> None:
    w.values("gpu_utilization_ratio", np.where(during, 1.0 - share, 0.99), **GPU)


@pytest.mark.parametrize(("share", "gaps"), [(0.25, True), (0.01, False)])
def test_kernels_launched_one_by_one_leave_gaps(share: float, gaps: bool, play: Play) -> None:
    def eager(w: World) -> None:
        a_batch_beyond_the_captured_size(w)
        idles(w, share)

    assert (said(play(eager), "cuda_graph_gap", "gaps").stance is Stance.FOR) is gaps


def slower_since_a_start(w: World) -> None:
    a_new_process(w)
    rng = np.random.default_rng(3)
    w.values("inter_token_seconds_mean", np.where(during, 0.04, 0.02) * np.exp(rng.normal(0, 0.02, POINTS)))
    idles(w, 0.3)
    w.goes("node_numa_remote_ratio", 0.02, 0.02, node="n0")


def test_a_far_process_is_no_missing_graph(play: Play) -> None:
    def far(w: World) -> None:
        slower_since_a_start(w)
        w.goes("node_numa_remote_ratio", 0.02, 0.6, node="n0")

    assert said(play(slower_since_a_start), "cuda_graph_gap", "host_clean").stance is Stance.FOR
    assert said(play(far), "cuda_graph_gap", "host_clean").stance is Stance.AGAINST


@pytest.mark.parametrize(("text", "told"), [("CPU set renewed", True), ("enforce-eager", False)])
def test_a_start_that_changed_something_else(text: str, told: bool, play: Play) -> None:
    def changed(w: World) -> None:
        slower_since_a_start(w)
        w.events.append(Event(w.onset - 5.0, "config", "e0", text))

    assert ("only_change" in cues(play(changed), "cuda_graph_gap")) is told


def test_a_card_that_got_no_work_does_not_tell_of_a_stall(play: Play) -> None:
    def blocked(w: World) -> None:
        a_prompt_larger_than_the_pool(w)
        w.values("gpu_utilization_ratio", np.where(np.arange(POINTS) >= AT, 0.0, 0.7), **GPU)

    assert "cards" not in cues(play(blocked), "engine_stall")


def halts_that_grow(w: World) -> None:
    """No records are kept: only the engine's own clocks and its card tell."""
    late = np.clip((np.arange(POINTS) - AT) / (POINTS - AT), 0.0, 1.0)
    w.slow(1.5)
    w.values("gpu_utilization_ratio", 0.99 - 0.5 * late, **GPU)
    w.goes("node_major_faults_per_second", 0.0, 0.0, node="n0")


def test_a_card_that_waits_more_and_more_tells_of_halts(play: Play) -> None:
    played = play(halts_that_grow)
    for cue in ("silences", "growing", "host_clean", "engine_sees"):
        assert said(played, "runtime_pauses", cue).stance is Stance.FOR


def test_a_card_that_works_on_speaks_against_halts(play: Play) -> None:
    def busy(w: World) -> None:
        halts_that_grow(w)
        idles(w, 0.01)

    assert said(play(busy), "runtime_pauses", "silences").stance is Stance.AGAINST


def test_halts_that_stay_as_long_hardly_tell_of_a_heap_that_grows(play: Play) -> None:
    def level(w: World) -> None:
        halts_that_grow(w)
        idles(w, 0.25)

    grown, same = (play(scene).of("runtime_pauses").confidence for scene in (halts_that_grow, level))
    assert grown > 0.5 > same


def test_a_host_that_swaps_halts_by_itself(play: Play) -> None:
    def swaps(w: World) -> None:
        halts_that_grow(w)
        w.goes("node_major_faults_per_second", 0.0, 900.0, node="n0")

    assert said(play(swaps), "runtime_pauses", "host_clean").stance is Stance.AGAINST


def test_who_asks_for_structured_output_is_not_known_without_records(play: Play) -> None:
    assert said(play(halts_that_grow), "runtime_pauses", "unprovoked").stance is Stance.AGAINST


@pytest.mark.parametrize(("share", "waits"), [(0.3, True), (0.01, False)])
def test_a_step_that_waits_for_its_mask_keeps_the_card_waiting(share: float, waits: bool, play: Play) -> None:
    def masked(w: World) -> None:
        w.slow(1.5)
        w.goes("grammar_queue_requests", 0.0, 5.0)
        idles(w, share)

    assert (said(play(masked), "grammar_stall", "card_waits").stance is Stance.FOR) is waits


@pytest.mark.parametrize(("during_ratio", "short"), [(0.93, True), (0.75, False)])
def test_a_cpu_that_is_full_now_is_short_however_it_wandered(
    during_ratio: float, short: bool, play: Play
) -> None:
    def wanders(w: World) -> None:
        w.slow(1.5)
        swings = 0.58 + 0.3 * np.sin(np.arange(POINTS) / 9.0)
        w.values("node_cpu_user_ratio", np.where(during, during_ratio, swings), node="n0")

    assert (said(play(wanders), "host_cpu_starvation", "cpu").stance is Stance.FOR) is short
