"""From rows to figures. A miss stays in every denominator: a case in which nothing was found, or nothing was
named, counts as wrong wherever a right answer existed.

*Leading right*: the leading answer is one of the label's accepted ones. *Rank list*: see ``Row.ranked``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diag.accuracy.label import UNKNOWN, Kind, Label
from diag.accuracy.row import Answer, Groups, Row
from diag.stats.proportions import Share, calibration_error, wilson

__all__ = [
    "Belief", "Exclusions", "Ranking", "accused", "belief", "blamed", "both_found", "by_cause",
    "by_severity", "exclusions", "false_symptoms", "found", "held_out", "named_wrongly", "of_kind",
    "onset_right", "our_groups", "rank_of", "ranking", "right", "scope_right", "unknown_recall",
]  # fmt: skip

_DEPTH = 5
_SCOPE_OVERLAP = 0.8
_ONSET_STEPS = 3.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """Over cases with a cause: ``first``, ``third``: the truth within the first one or three; ``mrr``: mean
    of 1/rank; ``avg5``: mean of the shares within the first one to five. ``hits``: per case, 0 or 1."""

    first: Share
    third: Share
    mrr: float
    avg5: float
    hits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Belief:
    """``precise``: share right among answers of at least that confidence, ``covered``: their share of all
    cases in which something is wrong; by threshold. ``ece``: ten bins of equal mass. ``bins``: (said,
    was, count)."""

    precise: Mapping[float, Share]
    covered: Mapping[float, Share]
    ece: float
    brier: float
    bins: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True, slots=True)
class Exclusions:
    """``statements``: wrong among all that was ruled out; ``windows``: windows in which a true cause was;
    ``blind``: windows in which a true cause was though something it asked for was missing, among those."""

    statements: Share
    windows: Share
    blind: Share


def of_kind(rows: Iterable[Row], kind: Kind) -> list[Row]:
    """The rows of one kind of case."""
    return [row for row in rows if row.label.kind is kind]


def right(row: Row) -> bool:
    """Whether the leading answer is an accepted one, None among them where nothing is wrong."""
    return row.leading in row.label.accept


def our_groups(row: Row) -> Groups:
    """Our own answers in the shape of a rival's: one cause a place."""
    return tuple((id,) for id in row.ranked)


def rank_of(groups: Groups, wanted: Iterable[str | None]) -> float:
    """The place of the first group that holds one of ``wanted``, from 1; infinity when there is none."""
    names = {name for name in wanted if name is not None}
    return next((place for place, group in enumerate(groups, start=1) if names & set(group)), math.inf)


def ranking(rows: Sequence[Row], groups: Callable[[Row], Groups] = our_groups) -> Ranking:
    """How high the truth stands, over ``rows`` (cases with a cause)."""
    places = [_place(row, groups) for row in rows]
    n = len(places)
    within = [sum(place <= k for place in places) for k in range(1, _DEPTH + 1)]
    return Ranking(
        wilson(within[0], n),
        wilson(within[2], n),
        sum(1.0 / place for place in places) / n if n else math.nan,
        sum(within) / (_DEPTH * n) if n else math.nan,
        tuple(float(place <= 1) for place in places),
    )


def _place(row: Row, groups: Callable[[Row], Groups]) -> float:
    # "Nothing is wrong" may be an accepted answer (a telemetry fault that hurts nobody): it is ours alone.
    if groups is our_groups and row.leading is None and None in row.label.accept:
        return 1.0
    return rank_of(groups(row), row.label.accept)


def both_found(rows: Sequence[Row]) -> Share:
    """Doubles of which both causes are among the first three."""
    return wilson(sum(set(row.label.causes) <= set(row.ranked[:3]) for row in rows), len(rows))


def accused(rows: Sequence[Row], least: float = 0.7) -> Share:
    """Healthy windows in which a cause leads with at least ``least`` confidence."""
    return wilson(
        sum(row.leading not in (None, UNKNOWN) and row.confidence >= least for row in rows), len(rows)
    )


def false_symptoms(rows: Sequence[Row]) -> Share:
    """Healthy windows in which a symptom was seen."""
    return wilson(sum(row.symptom for row in rows), len(rows))


def found(rows: Sequence[Row]) -> Share:
    """Felt cases in which a symptom was seen; none is due where "nothing is wrong" is an accepted answer."""
    felt = [row for row in rows if None not in row.label.accept]
    return wilson(sum(row.symptom for row in felt), len(felt))


def named_wrongly(rows: Sequence[Row]) -> Share:
    """Cases whose label says who is innocent, in which one of these leads or is supported."""
    known = [row for row in rows if row.label.must_not]
    return wilson(sum(bool(blamed(row)) for row in known), len(known))


def blamed(row: Row) -> tuple[str, ...]:
    """Whom of those that the label calls innocent the verdict names."""
    stands = {one.id for one in row.answers if one.state == "supported"} | {row.leading}
    return tuple(id for id in row.label.must_not if id in stands)


def unknown_recall(rows: Sequence[Row]) -> Share:
    """Cases of no cause of ours that are answered so."""
    return wilson(sum(row.leading == UNKNOWN for row in rows), len(rows))


def held_out(rows: Sequence[Row], least: float = 0.7) -> tuple[Share, Share]:
    """With the true cause's room gone: answered by unknown; and another cause blamed with confidence.

    Windows in which no symptom is seen at all stay in the denominator of both, as misses of the first unless
    the label accepts that nothing is wrong."""
    kept = [(row.label, row.held) for row in rows if row.held is not None]
    none = sum(
        held.leading == UNKNOWN or (held.leading is None and None in label.accept) for label, held in kept
    )
    blamed = sum(held.leading not in (None, UNKNOWN) and held.confidence >= least for _, held in kept)
    return wilson(none, len(kept)), wilson(blamed, len(kept))


def exclusions(rows: Sequence[Row]) -> Exclusions:
    """How often what was ruled out was true."""
    statements = wrong = windows = blind = without = 0
    for row in rows:
        out = [one for one in row.answers if one.state == "ruled_out" and one.id != UNKNOWN]
        statements += len(out)
        false = [one for one in out if one.id in row.label.causes]
        wrong += len(false)
        windows += bool(false)
        lacking = any(one.lacked for one in _true(row))
        without += lacking
        blind += any(one.lacked for one in false)
    return Exclusions(wilson(wrong, statements), wilson(windows, len(rows)), wilson(blind, without))


def _true(row: Row) -> list[Answer]:
    return [one for one in row.answers if one.id in row.label.causes]


def belief(rows: Sequence[Row], thresholds: Sequence[float] = (0.9, 0.7)) -> Belief:
    """Whether confidence means what it says: over every answer given, on healthy windows, too."""
    answered = [row for row in rows if row.leading is not None]
    said = np.array([row.confidence for row in answered])
    was = np.array([float(right(row)) for row in answered])
    wrong = sum(row.label.kind is not Kind.HEALTHY for row in rows)
    precise: dict[float, Share] = {}
    covered: dict[float, Share] = {}
    for least in thresholds:
        sure = said >= least
        precise[least] = wilson(float(was[sure].sum()), int(sure.sum()))
        ill = sum(row.label.kind is not Kind.HEALTHY and row.confidence >= least for row in answered)
        covered[least] = wilson(ill, wrong)
    ece, bins = calibration_error(said, was)
    brier = float(np.mean((said - was) ** 2)) if len(said) else math.nan
    return Belief(precise, covered, ece, brier, tuple(bins))


def scope_right(rows: Sequence[Row]) -> Share:
    """Cases whose leading answer is right and names whom it hits. For each kind of thing that the label names
    and the answer can be held to, 2·|both| / (|named| + |true|) is at least 0.8.

    Meant for cases with one cause: the label of two names everything that either hits. Instances are always
    held to: an answer that names none means every engine seen; the scrape targets of a telemetry fault are
    instances. Other kinds (gpus, tenants, nodes, sessions) are held to where the answer names any of that
    kind, or names nothing at all that the label does. Sessions may be a part: naming only true ones is right.
    """
    told = [row for row in rows if row.label.scope]
    return wilson(sum(right(row) and _scope(row) for row in told), len(told))


def _scope(row: Row) -> bool:
    named = dict(row.scope)
    named["gpus"] = tuple(_gpu(name, row.label) for name in named.get("gpus", ()))
    if not named["gpus"]:
        del named["gpus"]
    if "targets" in named:
        named.setdefault("instances", named["targets"])
    if "instances" not in named and row.engines:
        named["instances"] = row.engines
    shared = [kind for kind in row.label.scope if kind in named]
    if not shared:
        return False
    return all(_overlap(kind, set(named[kind]), set(row.label.scope[kind])) for kind in shared)


def _gpu(name: str, label: Label) -> str:
    """A GPU as labels call it: "GPU 2 of node-0" is "node-0/2"."""
    numbered = re.fullmatch(r"GPU (\d+) of (.+)", name)
    return label.gpu_names.get(name, f"{numbered[2]}/{numbered[1]}" if numbered else name)


def _overlap(kind: str, named: set[str], true: set[str]) -> bool:
    if kind == "sessions":
        return bool(named) and len(named & true) >= _SCOPE_OVERLAP * len(named)
    return 2 * len(named & true) >= _SCOPE_OVERLAP * (len(named) + len(true))


def onset_right(rows: Sequence[Row], *, strict: bool = False) -> Share:
    """Cases whose onset is within three steps of the true one. A climbing cause begins before anybody feels
    it: any time between its beginning (the label's onset) and the felt onset is right, give or take the three
    steps. ``strict``: within three steps of the felt onset alone."""
    known = [row for row in rows if row.label.onset is not None]
    return wilson(sum(_onset(row, strict) for row in known), len(known))


def _onset(row: Row, strict: bool) -> bool:
    begins = row.label.onset
    if row.onset is None or begins is None:
        return False
    felt = row.label.felt_onset if row.label.felt_onset is not None else begins
    first = felt if strict else min(begins, felt)
    slack = _ONSET_STEPS * row.step_seconds
    return first - slack <= row.onset <= max(felt, first) + slack


def by_cause(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Cases with a cause, by the first cause of their label."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row.label.leading or next(iter(row.label.causes), "")), []).append(row)
    return dict(sorted(found.items()))


def by_severity(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The mild, middle and severe third of the cases whose severity is known."""
    known = sorted((row for row in rows if row.label.severity is not None), key=_severity)
    thirds = np.array_split(np.arange(len(known)), 3)
    return {
        name: [known[i] for i in part]
        for name, part in zip(("mild", "middle", "severe"), thirds, strict=True)
    }  # fmt: skip


def _severity(row: Row) -> tuple[float, str]:
    return (row.label.severity or 0.0, row.name)
