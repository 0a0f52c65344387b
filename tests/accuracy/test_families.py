"""Seeds never meet, causes come equally often, and the list of cases survives a round trip."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from diag.accuracy.corpus import Filled, Spec
from diag.accuracy.families import FAMILIES, SHARES, family_named, quotas
from diag.accuracy.manifest import Manifest, corpus_hash, listed, read_manifest, write_manifest
from diag.errors import DiagError, UsageError
from diag.simulate.plan import Plan
from diag.simulate.scenarios import SCENARIOS
from diag.simulate.scenarios.draw import FAMILIES as CONDITIONS
from diag.simulate.scenarios.draw import Draw, Scenario


def _plan(_draw: Draw) -> Plan:
    return Plan("x", 1)


def _scenario(id: str, kind: str = "cause", hypothesis: str | None = None) -> Scenario:
    return Scenario(id, id if hypothesis is None else hypothesis, kind, "", _plan)


def test_seeds_of_two_families_never_meet() -> None:
    for a, b in combinations(FAMILIES.values(), 2):
        assert a.first_seed + a.seeds <= b.first_seed or b.first_seed + b.seeds <= a.first_seed
    for family in FAMILIES.values():
        found = {family.seed(id, number) for id in ("context_growth", "double") for number in range(500)}
        assert min(found) >= family.first_seed
        assert max(found) < family.first_seed + family.seeds
        assert len(found) == 1000
        assert family.name in CONDITIONS


def test_a_seed_does_not_depend_on_other_scenarios() -> None:
    assert family_named("test").seed("load_burst", 3) == family_named("test").seed("load_burst", 0) + 3
    with pytest.raises(UsageError, match="develop"):
        family_named("tset")


def test_every_cause_comes_equally_often() -> None:
    known = [
        _scenario("a"), _scenario("b1", hypothesis="b"), _scenario("b2", hypothesis="b"), _scenario("c"),
        _scenario("healthy", "healthy", ""), _scenario("harmless", "healthy", ""),
        _scenario("strange", "unknown", ""), _scenario("double", "double", ""),
    ]  # fmt: skip
    wanted = {one.scenario: one.cases for one in quotas(known, 100)}
    assert wanted["a"] == wanted["b1"] + wanted["b2"] == wanted["c"]
    assert abs(wanted["b1"] - wanted["b2"]) <= 1
    assert sum(wanted.values()) >= 100
    for kind, share in SHARES.items():
        assert sum(wanted[one.id] for one in known if one.kind == kind) >= round(100 * share)


def test_the_real_catalogue_fills_every_family_as_promised() -> None:
    for family in FAMILIES.values():
        wanted = {one.scenario: one.cases for one in quotas(SCENARIOS.values(), family.cases)}
        total = sum(wanted.values())
        assert total >= family.cases
        for kind in ("healthy", "unknown", "double"):
            assert sum(wanted.get(one.id, 0) for one in SCENARIOS.values() if one.kind == kind) >= 0.1 * total
    assert FAMILIES["test"].cases >= 1000
    assert FAMILIES["shifted"].cases >= 300


def test_the_manifest_survives_a_round_trip(tmp_path: Path) -> None:
    family = listed(
        [Filled("b", (Spec("b", 2, "22"),), 0), Filled("a", (Spec("a", 1, "11"), Spec("a", 4, "44")), 3)]
    )
    assert [spec.scenario for spec in family.cases] == ["a", "a", "b"]
    assert family.dropped == {"a": 3}
    path = write_manifest(Manifest({"test": family}), tmp_path / "m.json")
    read = read_manifest(path)
    assert read.families == {"test": family}
    assert len(path.read_text("utf-8").splitlines()) >= 3


def test_the_hash_is_of_every_case() -> None:
    family = listed([Filled("a", (Spec("a", 1, "11"),), 0)])
    other = listed([Filled("a", (Spec("a", 1, "12"),), 0)])
    assert corpus_hash({"test": family}) == corpus_hash({"test": family})
    assert len({corpus_hash({"test": family}), corpus_hash({"test": other}), corpus_hash({"x": family})}) == 3


@pytest.mark.parametrize("text", ["", "{}", '{"schema":"diag.corpus/9","families":{}}'])
def test_a_wrong_manifest_is_one_clear_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DiagError, match=r"m\.json"):
        read_manifest(path)
    with pytest.raises(DiagError, match="write-manifest"):
        read_manifest(tmp_path / "none.json")
