"""Figures as tables: ours against what was asked for, rivals on the same cases, causes one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from diag.accuracy import scoring
from diag.accuracy.label import Kind
from diag.accuracy.row import Groups, Row
from diag.accuracy.running import cpu_seconds
from diag.accuracy.tables import Table, number, percent, share
from diag.stats.proportions import Share, mcnemar, paired_gain

__all__ = ["best_rival", "family_tables", "rows_table"]

# Issue 4's figures for the test family, and what the shifted one must keep of them.
_TARGETS: Mapping[str, Mapping[str, str]] = {
    "test": {
        "AC@1": "≥ 95 %", "AC@3": "≥ 99 %", "both": "≥ 85 %", "held out": "≥ 95 %", "accused": "≤ 1 %",
        "ruled out": "≤ 0.1 %", "blind": "0", "precise": "≥ 99 %", "covered": "≥ 60 %", "ece": "≤ 0.03",
        "scope": "≥ 90 %", "onset": "≥ 80 %",
    },
    "shifted": {"AC@1": "≥ 85 %"},
}  # fmt: skip


def family_tables(family: str, rows: Sequence[Row]) -> list[Table]:
    """Everything about one family; tables without a case are left out."""
    tables = [_headline(family, rows)]
    causes = scoring.of_kind(rows, Kind.CAUSE)
    if causes and any(row.rivals for row in causes):
        tables.append(_rivals(family, causes))
    if causes:
        tables.append(_causes(family, causes))
    if any(row.label.severity is not None for row in causes):
        tables.append(_severities(family, causes))
    if sum(row.leading is not None for row in rows) >= 50:
        tables.append(_reliability(family, rows))
    return tables


def _headline(family: str, rows: Sequence[Row]) -> Table:
    causes, doubles, healthy, unknown = (
        scoring.of_kind(rows, kind) for kind in (Kind.CAUSE, Kind.DOUBLE, Kind.HEALTHY, Kind.UNKNOWN)
    )
    felt, begun = [*causes, *doubles, *unknown], [*causes, *unknown]
    ranked, held = scoring.ranking(causes), scoring.held_out(causes)
    belief, out = scoring.belief(rows), scoring.exclusions(rows)
    asked = _TARGETS.get(family, {})
    lines: list[tuple[str, str, str]] = [
        ("AC@1", share(ranked.first), "AC@1"),
        ("AC@3", share(ranked.third), "AC@3"),
        ("MRR, Avg@5", f"{number(ranked.mrr)}, {number(ranked.avg5)}", ""),
        ("symptom seen, felt cases", share(scoring.found(felt)), ""),
        ("symptom seen, healthy windows", share(scoring.false_symptoms(healthy)), ""),
        ("healthy windows accused at ≥ 0.7", share(scoring.accused(healthy)), "accused"),
        ("doubles: both causes in the first three", share(scoring.both_found(doubles)), "both"),
        ("unknown causes answered by unknown", share(scoring.unknown_recall(unknown)), ""),
        ("true cause's room removed: unknown", share(held[0]), "held out"),
        ("true cause's room removed: another blamed at ≥ 0.7", share(held[1]), ""),
        ("precision at ≥ 0.9", share(belief.precise[0.9]), "precise"),
        ("coverage at ≥ 0.9", share(belief.covered[0.9]), "covered"),
        ("precision at ≥ 0.7", share(belief.precise[0.7]), ""),
        ("coverage at ≥ 0.7", share(belief.covered[0.7]), ""),
        ("calibration error, Brier", f"{number(belief.ece)}, {number(belief.brier)}", "ece"),
        ("ruled out but true, of statements", share(out.statements), "ruled out"),
        ("ruled out but true, of windows", share(out.windows), ""),
        ("the same where something it asked for was missing", share(out.blind), "blind"),
        ("innocent ones named or supported", share(scoring.named_wrongly(rows)), ""),
        ("scope right", share(scoring.scope_right(causes)), "scope"),
        ("onset within 3 steps", share(scoring.onset_right(begun)), "onset"),
        ("onset within 3 steps of the felt one", share(scoring.onset_right(begun, strict=True)), ""),
    ]  # fmt: skip
    parts = (("with one cause", causes), ("with two", doubles), ("unknown", unknown), ("healthy", healthy))
    counted = ", ".join(f"{len(part)} {name}" for name, part in parts if part)
    spent = cpu_seconds(rows)
    cost = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in spent.items())
    return Table(
        f"{family}: {len(rows)} cases ({counted})",
        ("figure", "measured [95 %]", "asked for"),
        tuple(
            (name, value, asked.get(key, "")) for name, value, key in lines if not value.startswith("– (0")
        ),
        f"CPU a case: {cost}." if cost else "",
    )


def _named(method: str, *, true: bool) -> Callable[[Row], Groups]:
    def groups(row: Row) -> Groups:
        rival = row.rivals.get(method)
        if rival is None:
            return ()
        return rival.true if true else rival.found

    return groups


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.rivals))


def best_rival(rows: Sequence[Row]) -> str | None:
    """The rival with the most first places at our onset; None when none was asked."""
    return max(
        _methods(rows),
        key=lambda name: scoring.ranking(rows, _named(name, true=False)).first.value,
        default=None,
    )


def _rivals(family: str, causes: Sequence[Row]) -> Table:
    ours = scoring.ranking(causes)
    lines = [("**triage**", *_places(ours), "", "")]
    mine = np.array(ours.hits)
    for name in _methods(causes):
        at_ours = scoring.ranking(causes, _named(name, true=False))
        at_true = scoring.ranking(causes, _named(name, true=True))
        lines.append((name, *_places(at_ours), share(at_true.first), _gain(mine, np.array(at_ours.hits))))
    return Table(
        f"{family}: rivals on the same cases",
        ("method", "AC@1", "AC@3", "MRR", "Avg@5", "AC@1 at the true onset", "triage − method, AC@1"),
        tuple(lines),
        "A rival's metric counts for every cause it could mean. Points gained: mean of paired differences "
        "with its bootstrap interval; then the cases only triage got right : only the method did, and "
        "McNemar's exact p.",
    )


def _places(one: scoring.Ranking) -> tuple[str, str, str, str]:
    return share(one.first), percent(one.third.value), number(one.mrr), number(one.avg5)


def _gain(ours: np.ndarray, theirs: np.ndarray) -> str:
    mean, low, high = paired_gain(ours, theirs)
    won, lost, p = mcnemar(ours, theirs)
    return f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]; {won}:{lost}, p {p:.2g}"


def _causes(family: str, causes: Sequence[Row]) -> Table:
    best = best_rival(causes)
    lines = []
    for cause, rows in scoring.by_cause(causes).items():
        ranked = scoring.ranking(rows)
        rival = scoring.ranking(rows, _named(best, true=False)).first if best else None
        lines.append(
            (
                cause, str(len(rows)), _of(ranked.first), _of(ranked.third), _of(scoring.found(rows)),
                _of(scoring.held_out(rows)[0]), _of(rival) if rival else "", _mistaken(rows),
            )
        )  # fmt: skip
    return Table(
        f"{family}: by cause",
        (
            "cause",
            "cases",
            "AC@1",
            "AC@3",
            "symptom",
            "held out",
            f"AC@1, {best}" if best else "",
            "taken for",
        ),
        tuple(lines),
    )


def _of(one: Share) -> str:
    return "–" if one.count == 0 else f"{100 * one.value:.0f} %"


def _mistaken(rows: Iterable[Row]) -> str:
    """What wrong answers said, most frequent first."""
    wrong: dict[str, int] = {}
    for row in rows:
        if not scoring.right(row):
            said = row.leading or ("nothing wrong" if not row.symptom else "none")
            wrong[said] = wrong.get(said, 0) + 1
    ordered = sorted(wrong.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered[:3])


def _severities(family: str, causes: Sequence[Row]) -> Table:
    lines = []
    for name, rows in scoring.by_severity(causes).items():
        ranked = scoring.ranking(rows)
        lines.append((name, share(ranked.first), share(ranked.third), share(scoring.found(rows))))
    return Table(f"{family}: by severity", ("third", "AC@1", "AC@3", "symptom seen"), tuple(lines))


def _reliability(family: str, rows: Sequence[Row]) -> Table:
    lines = tuple(
        (number(said, 2), number(was, 2), str(count)) for said, was, count in scoring.belief(rows).bins
    )
    return Table(f"{family}: confidence", ("mean confidence", "share right", "answers"), lines)


def rows_table(family: str, rows: Sequence[Row]) -> Table:
    """One line a case: for families small enough to be read."""
    lines = []
    rival = best_rival(rows)
    for row in rows:
        expected = " or ".join("nothing" if one is None else one for one in row.label.accept)
        states = {one.id: one.state for one in row.answers}
        out = [cause for cause in row.label.causes if states.get(cause) == "ruled_out"]
        remarks = [f"rules out {id}" for id in out]
        remarks += [f"must not name {id}" for id in scoring.blamed(row)]
        theirs = scoring.rank_of(_named(rival, true=False)(row), row.label.accept) if rival else 0.0
        lines.append(
            (
                row.name, expected, row.leading or "nothing", number(row.confidence, 2),
                "right" if scoring.right(row) else "WRONG", "; ".join(remarks),
                ("right" if theirs <= 1 else "") if rival else "",
            )
        )  # fmt: skip
    header = ("case", "expected", "answer", "confidence", "", "remarks", rival or "")
    return Table(f"{family}: every case", header, tuple(lines))
