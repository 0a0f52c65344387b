"""What each recording from diag/engines must give, worked out in numpy and without its text.

A recorded signal is the engine's expression with the target's labels kept through its aggregations. So the
expression, which keeps none of them, is evaluated on the samples of one target after another (of one
cluster, job and model), and the target's labels are put on the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from diag.assets.rules.recordings import TARGET_LABELS, WINDOW_SECONDS, kept_labels, recorded
from diag.engines import ENGINES, Definition, Engine
from diag.signals.algebra import Aggregate, Expr, Gauge
from diag.signals.frame import Grid, RawSeries, SampleIndex, evaluate_many
from tests.engines.fleet import fleet
from tests.engines.made_up import SECONDS, START, made_up
from tests.engines.made_up import recorded as recording_in
from tests.engines.store import Answer
from tests.rules.mutation import title_of
from tests.rules.rulefiles import CHECKOUT, Rule, recordings

__all__ = ["GRID", "Generated", "generated", "same", "samples", "wanted"]

GRID = Grid(START + 40.0, START + SECONDS + 354.0, 80.0, float(WINDOW_SECONDS))
"""From when the look-back still holds the first samples of all to when it has passed the last of all."""

_RELATIVE = 1e-9
_BARE_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Generated:
    """A recording and what it was generated from: a signal of ``engine``, or a number in ``facts``."""

    rule: Rule
    engine: Engine
    signal: str
    fact: str

    @property
    def title(self) -> str:
        """The series it writes, as a selector."""
        return title_of(self.rule)


def samples() -> list[RawSeries]:
    """What the differential test holds, a real recording and made-up series of bare targets, and those of a
    labelled fleet besides."""
    bundle = CHECKOUT / "tests" / "incidents" / "context_growth_reference"
    return [*recording_in(bundle), *made_up(), *fleet()]


@cache
def generated() -> tuple[Generated, ...]:
    """Every recording below rules/engines. Raises AssertionError for one that belongs to no signal."""
    engines = {engine.name: engine for engine in ENGINES}
    found = []
    for rule in recordings():
        if rule.file.parent.name == "engines":
            engine = engines[rule.labels["producer"]]
            signals = [
                name
                for name, definition in engine.signals.items()
                if isinstance(definition, Definition) and _is_recorded(name, rule.record)
            ]
            facts = [name for name in engine.numbers if f"llm:{name}" == rule.record]
            assert len(signals) + len(facts) == 1, f"{title_of(rule)} belongs to {signals or 'no signal'}"
            found.append(Generated(rule, engine, "".join(signals), "".join(facts)))
    return tuple(found)


def _is_recorded(signal: str, record: str) -> bool:
    # Of the target itself (up, scrape_duration_seconds) nothing is recorded.
    return signal not in ("target_up", "scrape_seconds") and recorded(signal) == record


def wanted(series: Sequence[RawSeries]) -> dict[str, Answer]:
    """What each recording must give on ``GRID`` over ``series``, by its title, without ``producer``."""
    found: dict[str, Answer] = {}
    for kept in (TARGET_LABELS, (*TARGET_LABELS, "model_name")):
        chosen = [one for one in generated() if one.signal and kept == _kept(one)]
        targets = [(dict(labels), SampleIndex(part)) for labels, part in _by_target(series, kept)]
        found |= _of(chosen, targets, _expr)
    facts = [one for one in generated() if one.fact]
    found |= _of(facts, [({}, SampleIndex(series))], _fact_expr)
    return found


def _kept(one: Generated) -> tuple[str, ...]:
    model = "model_name" in kept_labels(one.engine, one.signal)
    return (*TARGET_LABELS, "model_name") if model else TARGET_LABELS


def _by_target(
    series: Sequence[RawSeries], kept: Sequence[str]
) -> Iterator[tuple[tuple[tuple[str, str], ...], list[RawSeries]]]:
    parts: dict[tuple[tuple[str, str], ...], list[RawSeries]] = {}
    for one in series:
        key = tuple((label, one.labels[label]) for label in kept if one.labels.get(label))
        parts.setdefault(key, []).append(one)
    yield from parts.items()


def _expr(one: Generated) -> Expr:
    definition = one.engine.signals[one.signal]
    assert isinstance(definition, Definition)
    return definition.expr


def _fact_expr(one: Generated) -> Expr:
    return Aggregate("max", Gauge(one.engine.numbers[one.fact]), ("cluster", "engine"))


def _of(
    chosen: Sequence[Generated],
    targets: Sequence[tuple[_Labels, SampleIndex]],
    expr: Callable[[Generated], Expr],
) -> dict[str, Answer]:
    found: dict[str, Answer] = {one.title: {} for one in chosen}
    for labels, index in targets:
        answers = evaluate_many([expr(one) for one in chosen], index, GRID)
        for one, vectors in zip(chosen, answers, strict=True):
            for vector in vectors:
                key = tuple(sorted(_relabelled(one, {**vector.labels, **labels}).items()))
                known = found[one.title].get(key, np.full(len(GRID.times), np.nan))
                found[one.title][key] = np.fmax(known, vector.values)
    return found


def _relabelled(one: Generated, labels: Mapping[str, str]) -> _Labels:
    """As the recordings spell labels: DCGM's like ours, a UUID with its prefix, a fact by its engine."""
    new = dict(labels)
    if one.fact and "engine" in new:
        new["instance"] = new["engine"]
    if one.engine.name == "nvidia_gpu_exporter" and _BARE_UUID.fullmatch(new.get("uuid", "")):
        new["uuid"] = f"GPU-{new['uuid']}"
    if one.engine.name == "dcgm":
        names = [new.pop(label, "") for label in ("Hostname", "hostname")]
        renamed = {
            "uuid": new.pop("UUID", ""),
            "mig_instance": new.pop("GPU_I_ID", ""),
            "node": next(filter(None, [new.get("node"), *names]), ""),
        }
        new |= {name: value for name, value in renamed.items() if value}
    return new


def same(one: Answer, other: Answer) -> bool:
    """Whether two answers have the same labels and, within 1e-9 of each other, the same values.

    Not a number counts as no value, as it does in bundles."""
    nothing = np.array(np.nan)
    return all(
        np.allclose(one.get(key, nothing), other.get(key, nothing), rtol=_RELATIVE, atol=0.0, equal_nan=True)
        for key in one.keys() | other.keys()
    )
