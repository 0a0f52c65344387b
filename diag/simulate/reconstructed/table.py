"""The reconstructed cases as a table for readers."""

from __future__ import annotations

from collections.abc import Iterable

from diag.simulate.reconstructed.case import Label, Reconstructed

__all__ = ["table"]

_HEAD = """# Reconstructed incidents

{count} public incidents rebuilt as small bundles around the numbers that their threads posted. They are no recordings:
what was posted is used exactly, what a bundle needs beyond it is made up and said. A label is what the thread found, mapped to
the ids of the catalogue before triage was ever run on the bundle; where the thread itself is unsure the right answer is
*unknown*, nothing, or any cause told as undecided. *Not* lists what the thread rules out. `make corpus` writes the bundles.

| case | source | how sure | posted | filled in | right answer | not |
|---|---|---|---|---|---|---|
"""


def table(cases: Iterable[Reconstructed]) -> str:
    """Markdown, a row for each case."""
    rows = [_row(case) for case in cases]
    return _HEAD.format(count=len(rows)) + "".join(rows)


def _row(case: Reconstructed) -> str:
    cells = (
        case.id,
        case.source,
        case.sure,
        case.posted,
        case.filled,
        _answer(case.label),
        ", ".join(f"`{name}`" for name in case.label.must_not) or "–",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _answer(label: Label) -> str:
    named = [_named(one) for one in (label.leading, *label.accept)]
    text = f"{named[0]}" + (f" (also {', '.join(named[1:])})" if len(named) > 1 else "")
    text += "; or undecided" if label.undecided else ""
    return f"{text}: {label.why}"


def _named(one: str | None) -> str:
    return "nothing is wrong" if one is None else f"`{one}`"
