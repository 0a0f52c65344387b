"""``diag bench`` and ``diag simulate`` for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diag.errors import DiagError, UsageError

if TYPE_CHECKING:
    from diag.accuracy.corpus import Made
    from diag.accuracy.manifest import Manifest
    from diag.accuracy.row import Row
    from diag.accuracy.tables import Table
    from diag.simulate.scenarios.draw import Scenario
    from diag.triage.calibration import Calibration

__all__ = ["RESULTS", "Benched", "bench", "calibrate", "scenarios", "simulate"]

RESULTS = Path("bench/out/results")
"""Where rows are kept, so that a second run only renders."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Benched:
    """``rows``: by family, in the order asked for. ``corpus``: hash of the cases from the manifest,
    ``dropped``: how many of each family were left out of it."""

    rows: Mapping[str, Sequence[Row]]
    corpus: str
    dropped: Mapping[str, int]

    def tables(self, *, every_case: bool = False) -> list[Table]:
        """All tables; ``every_case``: a line a case, too, also for large families."""
        from diag.accuracy.page import tables_of

        return tables_of(self.rows, every_case=every_case)

    def page(self, command: str) -> str:
        """The page for docs/, as Markdown."""
        from diag.accuracy.page import page
        from diag.accuracy.running import fingerprint

        return page(self.rows, corpus=self.corpus, dropped=self.dropped, command=command, judge=fingerprint())


def bench(
    asked: Sequence[str],
    *,
    jobs: int = 1,
    results: Path | None = RESULTS,
    baro: bool = True,
    manifest: Path | None = None,
    progress: Progress | None = None,
) -> Benched:
    """Judge labelled cases: families of the corpus, ``recorded``, ``reconstructed``, bundles, folders.

    ``baro``: measure fse-baro, too; ``DiagError`` when it is not installed."""
    from diag.accuracy.families import FAMILIES
    from diag.accuracy.judging import Task, rivals_without
    from diag.accuracy.manifest import corpus_hash, read_manifest
    from diag.accuracy.running import judge_all
    from diag.accuracy.sources import works

    if baro:
        _need_baro()
    listed: Manifest | None = read_manifest(manifest) if any(name in FAMILIES for name in asked) else None
    todo = works(asked, listed)
    rows = judge_all(todo, kept=results, task=Task(rivals=rivals_without(baro)), jobs=jobs, say=progress)
    by_family: dict[str, list[Row]] = {}
    for row in rows:
        by_family.setdefault(row.family, []).append(row)
    chosen = {} if listed is None else {k: v for k, v in listed.families.items() if k in by_family}
    return Benched(
        by_family,
        corpus_hash(chosen) if chosen else "",
        {name: sum(family.dropped.values()) for name, family in chosen.items()},
    )


def _need_baro() -> None:
    # Before an hour's work, not after it.
    from importlib.util import find_spec

    if find_spec("baro") is None:
        raise DiagError(
            "the rival fse-baro is not installed", hint="pip install 'llm-diag[bench]', or give --no-baro"
        )


def calibrate(rows: Sequence[Row]) -> tuple[Calibration, str]:
    """The calibration that fits ``rows`` best, and one line on how much better it is."""
    from diag.accuracy.calibration import fit

    found = fit(rows)
    one = found.calibration
    return one, (
        f"temperature {one.temperature:.3f}, unknown_prior {one.unknown_prior:.3f}, agreement "
        f"{one.agreement:.3f}: log loss {found.loss:.4f} (in force: {found.loss_before:.4f}) over "
        f"{found.cases} cases"
    )


def scenarios() -> tuple[Scenario, ...]:
    """Everything that ``simulate`` can make, in the order of the catalogue of hypotheses."""
    from diag.simulate.scenarios import SCENARIOS

    return tuple(SCENARIOS.values())


def simulate(
    scenario: str,
    path: str | Path,
    *,
    seed: int = 0,
    family: str = "develop",
    severity: float | None = None,
    progress: Progress | None = None,
) -> Made:
    """Simulate an incident and write it as a bundle to ``path`` (.zip, .tar.gz, else a folder).

    ``family`` chooses how hard the conditions are; ``severity`` (0 … 1) replaces the drawn one. The label
    says whether anybody feels the symptom: a mild draw may pass unnoticed."""
    from diag.accuracy.corpus import make
    from diag.simulate.parts import save, write_archive
    from diag.simulate.scenarios.draw import FAMILIES

    if family not in FAMILIES:
        raise UsageError(f"no family is called {family!r}", hint=f"choose from {', '.join(FAMILIES)}")
    if severity is not None and not 0 <= severity <= 1:
        raise UsageError(f"severity {severity:g} is not between 0 and 1")
    target = Path(path)
    if target.exists():
        raise DiagError(f"{target} exists already", hint="choose another name or remove it")
    if progress is not None:
        progress(f"simulating {scenario}")
    made = make(family, scenario, seed, severity=severity)
    named = made.bundle.with_meta(name=target.name.split(".")[0])
    packed = target.name.endswith((".zip", ".tar.gz", ".tgz"))
    (write_archive if packed else save)(named, target)
    return made
