"""docs/accuracy.md: the figures, after what to keep in mind about them."""

# ruff: noqa: E501  (prose in paragraphs)
from __future__ import annotations

from collections.abc import Mapping, Sequence

from diag import __version__
from diag.accuracy.baselines import BASELINES
from diag.accuracy.families import FAMILIES, SHARES
from diag.accuracy.felt import LIMITS
from diag.accuracy.report import family_tables, rows_table
from diag.accuracy.row import Row
from diag.accuracy.tables import Table, as_markdown
from diag.accuracy.thresholds import RULES

__all__ = ["SMALL", "page", "tables_of"]

SMALL = 150
"""Families of at most so many cases, none of them simulated, are shown case by case."""

_CAVEATS = """\
Read this first.

- Most cases are simulated, and one project wrote the simulator, the rooms and their weights. The recorded incidents are
  of a real engine, but few, and one small model. The reconstructed ones are public incidents: their posted numbers are
  theirs, what lies between was filled in here. Both were looked at while triage was written: they show what it does, and
  forecast nothing.
- Every simulated case has one cause (or two, or none we know), a healthy beginning, and an onset after 45 to
  75 % of its window. Real incidents begin before anybody records.
- A case counts only if its symptom is really there, told from the run's own truth (`diag/accuracy/felt.py`).
  What was dropped is counted below.
- Confidence has three numbers to fit, and they are fitted on the family *calibrate* alone. *test* and *shifted* were not looked
  at case by case.
"""


def tables_of(rows: Mapping[str, Sequence[Row]], *, every_case: bool = False) -> list[Table]:
    """The tables of all families, in order; ``every_case``: a line a case for each, too."""
    found: list[Table] = []
    for family, own in rows.items():
        found += family_tables(family, own)
        if every_case or (family not in FAMILIES and len(own) <= SMALL):
            found.append(rows_table(family, own))
    return found


def page(
    rows: Mapping[str, Sequence[Row]], *, corpus: str, dropped: Mapping[str, int], command: str, judge: str
) -> str:
    """The whole page as Markdown. ``corpus``: hash of the manifest; ``dropped``: unfelt cases by family;
    ``command``: what remakes it; ``judge``: fingerprint of the code that judged."""
    parts = [
        "# Accuracy",
        "<!-- written by `diag bench`: edit diag/accuracy, not this page -->",
        _CAVEATS,
        _made(rows, corpus, dropped, command, judge),
        as_markdown(tables_of(rows)),
        _method(),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _made(
    rows: Mapping[str, Sequence[Row]], corpus: str, dropped: Mapping[str, int], command: str, judge: str
) -> str:
    left = ", ".join(f"{count} from {name}" for name, count in dropped.items() if name in rows and count)
    lines = [
        f"llm-diag {__version__}, corpus `{corpus}`, judged by code `{judge}`. Remade by:",
        "",
        "```console",
        *(f"$ {line}" for line in command.splitlines()),
        "```",
    ]
    if left:
        lines += ["", f"Dropped for want of a symptom (or for having one while healthy): {left}."]
    return "\n".join(lines)


def _method() -> str:
    felt = "; ".join(f"{name} by ×{one.ratio:g} and {one.amount:g}" for name, one in LIMITS.items())
    seeds = "; ".join(
        f"{one.name} {one.first_seed:,}–{one.first_seed + one.seeds - 1:,}" for one in FAMILIES.values()
    )
    shares = ", ".join(f"{kind} {share:.0%}" for kind, share in SHARES.items())
    return f"""\
## How it was measured

**Families.** Seeds: {seeds}. Kinds: {shares}; every cause equally often. *shifted*: half the severity, 2.5 times the
noise and lost scrapes, twice the confounders, other topologies.

**Felt.** Worse after the onset than before for all callers, one replica's or one tenant's: {felt} (seconds, or a
share of requests).

**Ranks.** The verdict's order without what is ruled out or not assessable; unknown takes its place by confidence, never
before the leading answer. Where nothing leads, nothing is ranked, and the case is a miss. Intervals are Wilson's.

**Held out.** The same case judged with the rooms of every right answer removed.

**Wrong ruled out.** Over all statements in all windows, and over windows.

**Scope.** Over cases with one cause. Right when the answer is right and 2·|both| / (|named| + |true|) ≥ 0.8 for instances (none named: all) and for
every other kind that both name, and at least one kind is shared. **Onset.** Right between the cause's beginning and the moment it is felt, three steps
of slack at either end.

**Rivals.** {", ".join(BASELINES)}: the same columns (one a signal, the instance that shifted most; what a request log
gives without an idea of a cause), the same treatment of gaps, split at our onset (the middle of the window if we see
none) and again at the true one. Metrics become causes by `diag/accuracy/suspects.py`, as generously as possible. Relative
volume counts a change from zero as 1. fse-baro runs as shipped (0.2.2). The threshold checker has {len(RULES)} fixed rules of
the kind that published checkers share, and sees the last quarter of the window.
"""
