"""Make cases: scenario and seed to a bundle with a label, kept only if its symptom is really there.

The symptom is judged by ``felt`` from the truth of the run. A case of a cause that nobody feels, a healthy
one in which somebody happens to feel something, and one that was in trouble before its onset are dropped and
counted.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from diag.accuracy.families import Family, Quota
from diag.accuracy.felt import Felt, calm, felt
from diag.accuracy.label import Kind
from diag.errors import UsageError
from diag.simulate.observed import Run
from diag.simulate.parts import Bundle
from diag.simulate.scenarios.draw import FAMILIES as CONDITIONS
from diag.simulate.scenarios.draw import Scenario, draw_of

__all__ = [
    "CORPUS", "Filled", "Made", "Spec", "archive_of", "digest_of", "fill", "make", "name_of",
    "scenario_named", "write",
]  # fmt: skip

CORPUS = Path("bench/out/corpus")
"""Where ``make corpus`` writes families, one folder each."""

_UNFELT_BY_NATURE = frozenset({"telemetry_fault"})
_TRIES = 4  # for each case wanted, before a scenario counts as unable to show its symptom


class Spec(msgspec.Struct, frozen=True, array_like=True):
    """One case of the manifest: scenario, seed, and what its content must hash to ("" before it is made)."""

    scenario: str
    seed: int
    digest: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A case that was made. ``kept``: all was well before, and then its symptom is there (or, in a healthy
    case, is not)."""

    spec: Spec
    bundle: Bundle
    felt: Felt
    kept: bool


@dataclass(frozen=True, slots=True)
class Filled:
    """A quota as it came out: the cases kept, and how many were dropped on the way. ``short``: even so many
    tries gave too few."""

    scenario: str
    kept: tuple[Spec, ...]
    dropped: int
    short: bool = False


def name_of(spec: Spec) -> str:
    """A case's name: scenario and seed."""
    return f"{spec.scenario}-{spec.seed}"


def archive_of(folder: Path, spec: Spec) -> Path:
    """Where a case lies in its family's ``folder``."""
    return folder / f"{name_of(spec)}.tar.gz"


def write(made: Made, folder: Path) -> Path:
    """Write a case to its family's ``folder``, over an older one; bundle.json tells its digest."""
    from diag.simulate.parts import write_archive

    target = archive_of(folder, made.spec)
    target.unlink(missing_ok=True)
    return write_archive(made.bundle.with_meta(digest=made.spec.digest), target)


def scenario_named(id: str) -> Scenario:
    """The scenario ``id``; ``UsageError`` when there is none."""
    from diag.simulate.scenarios import SCENARIOS

    if id in SCENARIOS:
        return SCENARIOS[id]
    from difflib import get_close_matches

    near = get_close_matches(id, SCENARIOS, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`diag simulate --list` shows them"
    raise UsageError(f"no scenario is called {id!r}", hint=hint)


def make(family: str, scenario: str, seed: int, *, severity: float | None = None) -> Made:
    """Simulate one case as ``family`` draws it; always the same. ``severity``: instead of the drawn one."""
    from diag.simulate.serving import run
    from diag.simulate.telemetry import show

    chosen = scenario_named(scenario)
    draw = draw_of(seed, CONDITIONS[family])
    if severity is not None:
        draw = replace(draw, severity=severity)
    done = run(chosen.plan(draw))
    noticed = felt(done)
    bundle = _labelled(show(done), chosen, seed, done, noticed)
    return Made(Spec(scenario, seed, digest_of(bundle)), bundle, noticed, _kept(chosen, done, noticed))


def fill(family: Family, quota: Quota, *, take: Callable[[Made], object] | None = None) -> Filled:
    """Make cases of one scenario, seed after seed, until the quota is met or too many were dropped."""
    kept: list[Spec] = []
    tried = 0
    while len(kept) < quota.cases and tried < _TRIES * quota.cases:
        made = make(family.name, quota.scenario, family.seed(quota.scenario, tried))
        tried += 1
        if made.kept:
            kept.append(made.spec)
            if take is not None:
                take(made)
    return Filled(quota.scenario, tuple(kept), tried - len(kept), len(kept) < quota.cases)


def digest_of(bundle: Bundle) -> str:
    """SHA-256 of the content, the same however it is packed (first 32 hex digits)."""
    hasher = hashlib.sha256()
    hasher.update(json.dumps(bundle.meta, sort_keys=True, default=str).encode())
    for stem, group in sorted(bundle.metrics.items()):
        hasher.update(stem.encode())
        for one in group:
            hasher.update(json.dumps(dict(one.labels), sort_keys=True).encode())
            hasher.update(np.rint(one.times * 1000.0).astype("<i8").tobytes())
            hasher.update(one.values.astype("<f8").tobytes())
    hasher.update(msgspec.json.Encoder(order="sorted").encode_lines(bundle.requests))
    for path, data in sorted(bundle.files.items()):
        hasher.update(path.encode())
        hasher.update(gzip.decompress(data) if path.endswith(".gz") else data)
    return hasher.hexdigest()[:32]


def _kept(scenario: Scenario, done: Run, noticed: Felt) -> bool:
    if not calm(done):
        return False
    if scenario.kind == Kind.HEALTHY:
        return not noticed.felt
    return noticed.felt or scenario.hypothesis in _UNFELT_BY_NATURE


def _labelled(bundle: Bundle, scenario: Scenario, seed: int, done: Run, noticed: Felt) -> Bundle:
    """The label that the telemetry wrote, with what only scoring needs."""
    from diag.simulate.telemetry.cards import uuid_of

    truth = done.plan.truth
    begins = noticed.onset if noticed.felt else None
    # Some exporters show a card by its UUID alone.
    names = {
        f"{f'GPU-{uuid_of(card.host, card.index)}'[:12]} of {card.host}": f"{card.host}/{card.index}"
        for card in done.cards
    }
    added = {
        "case": scenario.kind,
        "scenario": scenario.id,
        "seed": seed,
        "severity": round(truth.severity, 4),
        "felt": {"what": noticed.what, "who": noticed.who, "strength": round(noticed.strength, 3)},
        "felt_onset": None if begins is None else done.plan.start + begins,
        "gpu_names": names,
    }
    return bundle.with_meta(label={**bundle.label, **added})
