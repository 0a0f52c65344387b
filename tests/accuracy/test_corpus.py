"""Cases that are made: the same every time, labelled for scoring, kept for a symptom that is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from diag.accuracy import corpus, running, sources
from diag.accuracy.corpus import Made, Spec, digest_of, fill, make, name_of
from diag.accuracy.families import Quota, family_named
from diag.accuracy.felt import Felt, calm
from diag.accuracy.label import Kind, label_of
from diag.accuracy.manifest import Listed, Manifest
from diag.accuracy.reading import NOW, case_at, case_of
from diag.accuracy.sources import opened, works
from diag.errors import DiagError, UsageError
from diag.simulate.observed import Run
from diag.simulate.parts import load, write_archive
from diag.triage import triage

SEED = family_named("develop").seed("thermal_throttle", 0)


@pytest.fixture(scope="module")
def made() -> Made:
    """One case, made once."""
    return make("develop", "thermal_throttle", SEED)


def test_a_case_is_labelled_for_scoring(made: Made) -> None:
    label = label_of(made.bundle.label)
    assert label.kind is Kind.CAUSE
    assert label.causes == ("thermal_throttle",)
    assert label.scenario == "thermal_throttle"
    assert label.severity is not None
    assert label.onset is not None
    assert made.bundle.window.contains(label.onset)
    if made.felt.felt:
        assert label.felt_onset is not None
        assert label.felt_onset >= label.onset
    assert name_of(made.spec) == f"thermal_throttle-{SEED}"


def test_a_case_can_be_made_again_and_the_manifest_holds_it_to_that(made: Made) -> None:
    manifest = Manifest({"develop": Listed((made.spec,))})
    (work,) = works(["develop"], manifest)
    case, label, digest = opened(work)
    assert digest == made.spec.digest
    assert label == label_of(made.bundle.label)
    assert case.window == made.bundle.window
    (other,) = works(["develop"], Manifest({"develop": Listed((Spec("thermal_throttle", SEED, "0" * 32),))}))
    with pytest.raises(DiagError, match="write-manifest"):
        opened(other)


def test_a_made_case_on_disk_and_in_memory_gets_one_verdict(made: Made, tmp_path: Path) -> None:
    archive = write_archive(made.bundle, tmp_path / "case.tar.gz")
    on_disk = triage(case_at(archive), now=NOW, version="x")
    in_memory = triage(case_of(made.bundle), now=NOW, version="x")
    assert replace(in_memory, source=on_disk.source) == on_disk
    assert on_disk.assessments


def test_the_digest_is_of_the_content_and_of_all_of_it(incidents: Path) -> None:
    bundle = load(incidents / "load_burst")
    stem, group = next(iter(bundle.metrics.items()))
    off = replace(group[0], values=group[0].values + 1)
    late = replace(group[0], times=group[0].times + 1)
    others = [
        replace(bundle, requests=bundle.requests[:-1]),
        bundle.with_meta(notes="other"),
        bundle.with_metrics(**{stem: (off, *group[1:])}),
        bundle.with_metrics(**{stem: (late, *group[1:])}),
        bundle.with_metrics(**{stem: group[1:]}),
        replace(bundle, files={}),
    ]
    assert digest_of(bundle) == digest_of(load(incidents / "load_burst"))
    assert len({digest_of(bundle), *map(digest_of, others)}) == 1 + len(others)


def _stub(monkeypatch: pytest.MonkeyPatch, kept: Callable[[int], bool], made: Made) -> None:
    def other(_family: str, scenario: str, seed: int) -> Made:
        return Made(Spec(scenario, seed, "d"), made.bundle, made.felt, kept(seed))

    monkeypatch.setattr(corpus, "make", other)


def test_a_quota_is_filled_with_felt_cases_and_drops_are_counted(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stub(monkeypatch, lambda seed: seed % 2 == 0, made)
    taken: list[Made] = []
    filled = fill(family_named("develop"), Quota("thermal_throttle", 5), take=taken.append)
    assert len(filled.kept) == len(taken) == 5
    assert filled.dropped in (4, 5)
    assert not filled.short
    assert all(spec.seed % 2 == 0 for spec in filled.kept)


def test_a_scenario_that_shows_nothing_is_given_up_and_said(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stub(monkeypatch, lambda _seed: False, made)
    filled = fill(family_named("develop"), Quota("thermal_throttle", 3))
    assert filled.kept == ()
    assert filled.short
    assert filled.dropped == 12


def test_remaking_names_what_differs(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "make", lambda _family, _scenario, _seed: made)
    wrong = Spec("thermal_throttle", SEED, "0" * 32)
    assert running.remake("develop", [made.spec], folder=tmp_path) == []
    assert running.remake("develop", [wrong], folder=None) == [name_of(made.spec)]
    assert [path.name for path in tmp_path.iterdir()] == [f"{name_of(made.spec)}.tar.gz"]


def test_a_written_case_is_read_and_a_stale_one_is_made_again(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus.write(made, corpus.CORPUS / "develop")
    calls: list[int] = []

    def again(_family: str, _scenario: str, seed: int) -> Made:
        calls.append(seed)
        return made

    monkeypatch.setattr(sources, "make", again)
    (work,) = works(["develop"], Manifest({"develop": Listed((made.spec,))}))
    case, label, digest = opened(work)
    assert (digest, label, calls) == (made.spec.digest, label_of(made.bundle.label), [])
    assert case.window == made.bundle.window
    stale = replace(made, spec=Spec("thermal_throttle", SEED, "0" * 32))
    corpus.write(stale, corpus.CORPUS / "develop")
    assert opened(work)[2] == made.spec.digest
    assert calls == [SEED]


@pytest.mark.parametrize(
    ("kind", "felt", "expected"),
    [("cause", True, True), ("cause", False, False), ("healthy", False, True), ("healthy", True, False)],
)
def test_only_felt_causes_and_unfelt_health_are_kept(
    kind: str, felt: bool, expected: bool, run: Callable[..., Run]
) -> None:
    quiet = run(lambda _sent: 0.3)
    scenario = replace(corpus.scenario_named("thermal_throttle"), kind=kind)
    assert calm(quiet)
    assert corpus._kept(scenario, quiet, Felt(felt)) is expected


def test_a_fault_of_the_telemetry_needs_no_symptom(run: Callable[..., Run]) -> None:
    scenario = corpus.scenario_named("telemetry_fault")
    assert corpus._kept(scenario, run(lambda _sent: 0.3), Felt(False))


def test_a_service_in_trouble_before_its_onset_is_no_case(run: Callable[..., Run]) -> None:
    scenario = corpus.scenario_named("thermal_throttle")
    for bad in (run(lambda _sent: 60.0), run(lambda sent: 0.3 if sent < 700 else 5.0)):
        assert not calm(bad)
        assert not corpus._kept(scenario, bad, Felt(True))


def test_an_unknown_scenario_names_its_neighbour() -> None:
    with pytest.raises(UsageError, match="thermal_throttle"):
        corpus.scenario_named("thermal_throtle")
