"""Simulated GPU, host and gateway telemetry on real recordings: what it supports and what it excludes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import pytest

from diag.model import Assessment, State, Verdict
from diag.simulate import OVERLAID, Bundle, overlaid
from diag.simulate.overlays import gpu_calm

CAUSES = [name for name in OVERLAID if name.startswith("healthy_")]
GPU_CAUSES = ["healthy_neighbour", "healthy_power_brake", "healthy_thermal"]
ONSET_SECONDS = 60.0


@pytest.fixture(scope="module")
def answer(judged: Callable[[Bundle], Verdict]) -> Callable[[str], tuple[Bundle, Verdict]]:
    """The overlaid incident and its verdict."""

    @cache
    def get(name: str) -> tuple[Bundle, Verdict]:
        bundle = overlaid(name)
        return bundle, judged(bundle)

    return get


def assessment(verdict: Verdict, cause: str) -> Assessment:
    (found,) = [one for one in verdict.assessments if one.id == cause]
    return found


@pytest.mark.parametrize("name", CAUSES)
def test_the_overlaid_cause_is_supported_and_leads(
    name: str, answer: Callable[[str], tuple[Bundle, Verdict]]
) -> None:
    bundle, verdict = answer(name)
    cause = bundle.label["leading"]
    assert assessment(verdict, cause).state == State.SUPPORTED
    assert verdict.leading == cause


@pytest.mark.parametrize("name", CAUSES)
def test_its_onset_is_found_within_a_minute(
    name: str, answer: Callable[[str], tuple[Bundle, Verdict]]
) -> None:
    bundle, verdict = answer(name)
    onset = assessment(verdict, bundle.label["leading"]).onset
    assert onset is not None
    assert onset == pytest.approx(bundle.label["onset"], abs=ONSET_SECONDS)


@pytest.mark.parametrize("name", CAUSES)
def test_nothing_else_is_named_with_confidence(
    name: str, answer: Callable[[str], tuple[Bundle, Verdict]]
) -> None:
    bundle, verdict = answer(name)
    others = {
        one.id: round(one.confidence, 2)
        for one in verdict.assessments
        if one.state == State.SUPPORTED and one.confidence >= 0.7 and one.explained_by is None
    }
    others.pop(bundle.label["leading"], None)
    assert others == {}


@pytest.mark.parametrize("cause", OVERLAID["context_growth_gpu"].ruled_out)
def test_a_calm_card_rules_out_with_numbers(
    cause: str, answer: Callable[[str], tuple[Bundle, Verdict]]
) -> None:
    _, verdict = answer("context_growth_gpu")
    found = assessment(verdict, cause)
    assert found.state == State.RULED_OUT
    decisive = [item for item in found.evidence if item.decisive]
    assert decisive
    assert any(any(letter.isdigit() for letter in item.text) for item in decisive)


def test_a_job_whose_process_stays_between_runs_is_ruled_out_too(
    recording: Callable[[str], Bundle], judged: Callable[[Bundle], Verdict]
) -> None:
    # A bare CUDA context of half a gigabyte is no work: only its runs count.
    verdict = judged(gpu_calm(recording("context_growth_reference"), resident=True))
    assert assessment(verdict, "noisy_neighbour").state == State.RULED_OUT


def test_a_calm_card_leaves_the_recordings_cause_leading(
    answer: Callable[[str], tuple[Bundle, Verdict]],
) -> None:
    bundle, verdict = answer("context_growth_gpu")
    assert verdict.leading == bundle.label["leading"]


@pytest.mark.parametrize("name", ["context_growth_gpu", *GPU_CAUSES])
def test_without_the_exporter_gpu_causes_are_not_assessable(
    name: str,
    mutilations: Mapping[str, Callable[[Bundle], Bundle]],
    judged: Callable[[Bundle], Verdict],
) -> None:
    bundle = mutilations["no_gpu"](overlaid(name))
    verdict = judged(bundle)
    for cause in OVERLAID["context_growth_gpu"].ruled_out:
        found = assessment(verdict, cause)
        assert found.state == State.NOT_ASSESSABLE
        assert any(item.how_to_get for item in found.missing)
    expected = {"context_growth"} if name == "context_growth_gpu" else {None, "unknown"}
    assert verdict.leading in expected
