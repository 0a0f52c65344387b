"""Every figure, counted on fingers."""

# ruff: noqa: E501  (a case a line)
from __future__ import annotations

from collections.abc import Callable

import pytest

from diag.accuracy import scoring
from diag.accuracy.label import Kind
from diag.accuracy.row import Answer, Held, Rival, Row

Make = Callable[..., Row]
SUPPORTED, UNDECIDED, OUT, BLIND = "supported", "undecided", "ruled_out", "not_assessable"


def test_the_rank_list_leaves_out_what_is_ruled_out_or_unseen(row: Make) -> None:
    answers = (
        Answer("load_burst", SUPPORTED, 0.9),
        Answer("power_cap", UNDECIDED, 0.05),
        Answer("unknown", UNDECIDED, 0.1),
        Answer("thermal_throttle", BLIND, 0.0),
        Answer("sequence_limit", OUT, 0.0),
    )
    assert row("load_burst", answers=answers).ranked == ("load_burst", "unknown", "power_cap")
    assert row(None, answers=answers).ranked == ()


def test_unknown_never_goes_before_the_leading_answer(row: Make) -> None:
    answers = (Answer("load_burst", UNDECIDED, 0.3), Answer("unknown", UNDECIDED, 0.6))
    assert row("load_burst", answers=answers).ranked == ("load_burst", "unknown")
    assert row("unknown", answers=answers).ranked == ("unknown", "load_burst")


def test_a_miss_stays_in_the_denominator(row: Make) -> None:
    second = (Answer("power_cap", SUPPORTED, 0.9), Answer("load_burst", UNDECIDED, 0.05))
    rows = [row("load_burst"), row(None), row("power_cap", answers=second), row("unknown")]
    found = scoring.ranking(rows)
    assert found.first.value == pytest.approx(1 / 4)
    assert found.third.value == pytest.approx(2 / 4)
    assert found.mrr == pytest.approx((1 + 0 + 1 / 2 + 0) / 4)
    assert found.avg5 == pytest.approx((1 + 2 + 2 + 2 + 2) / 20)
    assert found.hits == (1.0, 0.0, 0.0, 0.0)
    assert found.first.low < 0.25 < found.first.high


def test_any_accepted_answer_is_right(row: Make) -> None:
    either = row("kv_cache_exhaustion", label={"accept": ("load_burst", "kv_cache_exhaustion")})
    silent = row(None, truth="telemetry_fault", label={"accept": ("telemetry_fault", None)})
    assert scoring.right(either)
    assert scoring.right(silent)
    assert scoring.ranking([either, silent]).first.value == 1.0
    assert not scoring.right(row("power_cap"))


def test_rivals_are_ranked_by_groups(row: Make) -> None:
    rival = Rival((("power_cap",), ("load_burst", "routing_hotspot")), (("load_burst",),))
    rows = [row("load_burst", rivals={"ks2": rival})]
    ours = scoring.ranking(rows, lambda one: one.rivals["ks2"].found)
    true = scoring.ranking(rows, lambda one: one.rivals["ks2"].true)
    assert (ours.first.value, ours.third.value, ours.mrr) == (0.0, 1.0, 0.5)
    assert true.first.value == 1.0


def test_a_rival_gets_nothing_for_our_silence(row: Make) -> None:
    silent = row(None, truth="telemetry_fault", label={"accept": ("telemetry_fault", None)})
    assert scoring.ranking([silent], lambda _row: ()).first.value == 0.0


def test_both_of_two_causes_must_be_among_the_first_three(row: Make) -> None:
    def answered(*ids: str) -> Row:
        answers = tuple(Answer(id, SUPPORTED, 0.9) for id in ids)
        both = {"kind": Kind.DOUBLE, "causes": ("load_burst", "power_cap")}
        return row(ids[0], answers=answers, label=both)

    rows = [
        answered("load_burst", "thermal_throttle", "power_cap"),
        answered("load_burst", "thermal_throttle", "long_outputs", "power_cap"),
    ]
    assert scoring.both_found(rows).value == 0.5


def test_healthy_windows_are_accused_only_with_confidence(row: Make) -> None:
    rows = [
        row("load_burst", 0.75, truth=None), row("load_burst", 0.6, truth=None),
        row("unknown", 0.9, truth=None), row(None, truth=None),
    ]  # fmt: skip
    assert scoring.accused(rows).value == 0.25
    assert scoring.false_symptoms(rows).value == 0.75


def test_wrong_exclusions_are_counted_by_statement_window_and_missing_exporter(row: Make) -> None:
    rows = [
        row("power_cap", answers=(Answer("load_burst", OUT, 0.0, lacked=True), Answer("sequence_limit", OUT, 0.0))),
        row("load_burst", answers=(Answer("load_burst", SUPPORTED, 0.9, lacked=True), Answer("power_cap", OUT, 0.0))),
        row("load_burst", answers=(Answer("load_burst", SUPPORTED, 0.9), Answer("unknown", OUT, 0.0))),
    ]  # fmt: skip
    found = scoring.exclusions(rows)
    assert (found.statements.hits, found.statements.count) == (1, 3)
    assert (found.windows.hits, found.windows.count) == (1, 3)
    assert (found.blind.hits, found.blind.count) == (1, 2)


def test_confidence_is_held_to_every_answer_and_coverage_to_every_ill_window(row: Make) -> None:
    rows = [
        row("load_burst", 0.95), row("power_cap", 0.92), row("load_burst", 0.75), row(None),
        row("power_cap", 0.91, truth=None), row(None, truth=None),
    ]  # fmt: skip
    found = scoring.belief(rows)
    assert (found.precise[0.9].hits, found.precise[0.9].count) == (1, 3)
    assert (found.covered[0.9].hits, found.covered[0.9].count) == (2, 4)
    assert (found.precise[0.7].hits, found.precise[0.7].count) == (2, 4)
    assert found.brier == pytest.approx((0.05**2 + 0.92**2 + 0.25**2 + 0.91**2) / 4)


@pytest.mark.parametrize(
    ("named", "true", "expected"),
    [
        ({"instances": ("a",)}, {"instances": ("a",)}, True),
        ({"instances": ("b",)}, {"instances": ("a",)}, False),
        ({}, {"instances": ("a", "b")}, True),
        ({}, {"instances": ("a",)}, False),
        ({"gpus": ("n/0",), "instances": ("a",)}, {"gpus": ("n/1",), "instances": ("a",)}, False),
        ({"instances": ("a",)}, {"gpus": ("n/1",), "instances": ("a",)}, True),
        ({"gpus": ("GPU 1 of n",), "instances": ("a",)}, {"gpus": ("n/1",), "instances": ("a",)}, True),
        ({"gpus": ("GPU-12345678 of n",)}, {"gpus": ("n/1",)}, True),
        ({"targets": ("a",)}, {"instances": ("a",)}, True),
        ({"sessions": ("s1",)}, {"sessions": ("s1", "s2", "s3")}, True),
        ({"sessions": ("s1", "x")}, {"sessions": ("s1", "s2")}, False),
    ],
)
def test_scope(
    named: dict[str, tuple[str, ...]], true: dict[str, tuple[str, ...]], expected: bool, row: Make
) -> None:
    known = {"GPU-12345678 of n": "n/1"}
    one = row("load_burst", scope=named, label={"scope": true, "gpu_names": known})
    assert scoring.scope_right([one]).value == float(expected)
    wrong = row("power_cap", scope=named, label={"scope": true})
    assert scoring.scope_right([wrong]).value == 0.0


@pytest.mark.parametrize(
    ("onset", "loose", "strict"),
    [
        (1000.0, True, False),
        (1290.0, True, False),
        (1640.0, True, True),
        (1700.0, False, False),
        (950.0, False, False),
    ],
)
def test_onset_between_the_beginning_and_being_felt(
    onset: float, loose: bool, strict: bool, row: Make
) -> None:
    one = row("load_burst", onset=onset, label={"onset": 1000.0, "felt_onset": 1600.0})
    assert scoring.onset_right([one]).value == float(loose)
    assert scoring.onset_right([one], strict=True).value == float(strict)


def test_a_window_without_an_onset_told_is_a_miss(row: Make) -> None:
    assert scoring.onset_right([row(None, label={"onset": 1000.0})]).value == 0.0


def test_the_innocent_must_neither_lead_nor_be_supported(row: Make) -> None:
    label = {"must_not": ("engine_stall", "slow_gpu")}
    second = (Answer("load_burst", SUPPORTED, 0.9), Answer("slow_gpu", SUPPORTED, 0.8))
    weak = (Answer("load_burst", SUPPORTED, 0.9), Answer("slow_gpu", UNDECIDED, 0.1))
    rows = [
        row("engine_stall", label=label), row("load_burst", answers=second, label=label),
        row("load_burst", answers=weak, label=label), row("slow_gpu"),
    ]  # fmt: skip
    assert [scoring.blamed(one) for one in rows] == [("engine_stall",), ("slow_gpu",), (), ()]
    found = scoring.named_wrongly(rows)
    assert (found.hits, found.count) == (2, 3)


def test_held_out(row: Make) -> None:
    rows = [
        row("load_burst", held=Held("unknown", 0.8)), row("load_burst", held=Held("power_cap", 0.8)),
        row("load_burst", held=Held("power_cap", 0.5)), row(None, held=Held(None, 0.0)),
    ]  # fmt: skip
    none, blamed = scoring.held_out(rows)
    assert (none.hits, none.count, blamed.hits) == (1, 4, 1)


def test_severity_comes_in_thirds(row: Make) -> None:
    rows = [row("load_burst", name=f"c{i}", label={"severity": i / 10}) for i in range(9)]
    thirds = scoring.by_severity(rows)
    assert [len(part) for part in thirds.values()] == [3, 3, 3]
    assert max(one.label.severity or 0 for one in thirds["mild"]) < 0.3
