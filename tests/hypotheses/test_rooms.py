"""Each room with a case made for it, and one made against it."""

from __future__ import annotations

import pytest

from diag.detectors.cues import Explained
from diag.hypotheses import HYPOTHESES
from diag.model import Evidence, Stance, State
from diag.signals import SIGNALS

from . import machine_scenes  # noqa: F401 (adds its scenes to those of ``scenes``)
from .conftest import STEP, World
from .engine_scenes import ENGINE
from .scenes import AGAINST, DRIVERS, FOR, Play

IDS = [h.card.id for h in HYPOTHESES]


def test_every_room_has_a_case_for_it_and_one_against_it() -> None:
    assert sorted(FOR) == sorted(AGAINST) == sorted(IDS)
    assert set(FOR) > ENGINE


@pytest.mark.parametrize("id", IDS)
def test_a_case_made_for_it_supports_it(id: str, play: Play) -> None:
    played = play(FOR[id])
    found = played.of(id)
    said = {e.cue: e for e in found.evidence}
    assert said[DRIVERS[id]].stance is Stance.FOR
    assert found.state is State.SUPPORTED, {cue: (e.stance, round(e.weight, 2)) for cue, e in said.items()}
    assert found.onset == pytest.approx(played.world.onset, abs=12 * STEP)


@pytest.mark.parametrize("id", IDS)
def test_a_case_made_against_it_excludes_it(id: str, play: Play) -> None:
    found = play(AGAINST[id]).of(id)
    assert found.state in (State.RULED_OUT, State.UNDECIDED)
    assert found.confidence < 0.1
    against = [e for e in found.evidence if e.stance is Stance.AGAINST]
    assert sum(e.weight for e in against) < -2, found.evidence


@pytest.mark.parametrize("id", [id for id in IDS if id not in ("prefix_cache_off", "telemetry_fault")])
def test_the_case_made_for_it_names_no_other_root(id: str, play: Play) -> None:
    verdict = play(FOR[id]).verdict
    roots = {a.id for a in verdict.assessments if a.state is State.SUPPORTED and a.explained_by is None}
    assert roots == {id}


def test_a_calm_service_supports_nothing(play: Play) -> None:
    verdict = play(World.clients).verdict
    assert verdict.leading is None
    assert [a.id for a in verdict.assessments if a.state is State.SUPPORTED] == []


@pytest.mark.parametrize("id", IDS)
def test_a_room_only_reads(id: str, play: Play) -> None:
    """Asked twice, it says the same, in a sentence and with the signal it rests on."""
    played = play(FOR[id])
    (room,) = [h for h in HYPOTHESES if h.card.id == id]
    once, again = (list(room.examine(played.view)) for _ in range(2))
    assert once == again
    for item in once:
        if isinstance(item, Evidence):
            assert item.signal in SIGNALS
            assert item.text
            assert "\n" not in item.text
            assert 0 <= item.degree <= 1
            assert not (item.decisive and item.stance is Stance.FOR)
        if isinstance(item, Explained):
            assert 0 <= item.share <= 1
