"""The postmortem as Markdown, under the field's common headings; figures lie beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from diag.renderers.markdown import escaped
from diag.renderers.page import Cause, Line
from diag.renderers.report.charts import described
from diag.renderers.report.content import HUMAN, Report, Row
from diag.renderers.report.kept import begin, end

__all__ = ["render"]

_BACKTICKS = re.compile(r"`+")


def render(
    report: Report, *, kept: Mapping[str, str] | None = None, figures: Mapping[str, str] | None = None
) -> str:
    """``report`` as Markdown. ``kept``: what people wrote before, by section; ``figures``: exhibit id -> the
    path of its picture, as seen from the file."""
    return "\n".join(_lines(report, kept or {}, figures or {})).strip() + "\n"


def _lines(report: Report, kept: Mapping[str, str], figures: Mapping[str, str]) -> Iterator[str]:
    yield f"# Postmortem: {escaped(report.title)}"
    yield ""
    yield f"Date: {report.date} · Status: {escaped(report.status)}"
    yield from _section("Summary", [escaped(report.page.headline), "", *_pairs(report.facts)])
    yield from _section("Impact", _impact(report))
    yield from _section("Root cause", _cause(report.page.leading, report, figures))
    yield from _section("Contributing factors", _pairs(report.contributing))
    yield from _section("Timeline", _table(("time (UTC)", "after onset", "what"), report.timeline))
    yield from _human("response", kept)
    noted = [report.detection_note, ""] if report.detection_note else []
    yield from _section("Detection", [*noted, *_pairs(report.detection)])
    yield from _section("Mitigation", _pairs(report.mitigation))
    yield from _section("Prevention", _pairs(report.prevention))
    yield from _section("Ruled out", _pairs(report.page.ruled_out))
    yield from _section("Could not be checked", _pairs(report.page.unchecked))
    for one in HUMAN[1:]:
        yield from _human(one.id, kept)
    yield from _section("Appendix: data", _pairs(report.appendix))
    yield from _section("Appendix: queries", _queries(report.queries))


def _section(title: str, body: Iterable[str]) -> Iterator[str]:
    lines = list(body)
    if lines:
        yield from ("", f"## {title}", "")
        yield from lines


def _pairs(lines: Sequence[Line]) -> list[str]:
    return [f"- **{escaped(line.about)}**: {escaped(line.text)}" for line in lines]


def _queries(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        # A fence longer than any run of backticks in the text: nothing inside can end the block.
        longest = max((len(run) for run in _BACKTICKS.findall(line.text)), default=0)
        fence = "`" * max(3, longest + 1)
        yield from (f"{escaped(line.about)}:", "", f"{fence}promql", line.text, fence, "")


def _impact(report: Report) -> Iterator[str]:
    yield from _pairs(report.impact)
    if report.impact_source:
        yield from ("", f"Counted from {escaped(report.impact_source)}.")
    if report.cohorts:
        yield ""
        yield from _table(
            ("who", "requests", "first token before (p95)", "during (p95)", "waited"), report.cohorts
        )


def _cause(cause: Cause | None, report: Report, figures: Mapping[str, str]) -> Iterator[str]:
    if cause is None:
        return
    yield f"`{cause.id}`: {escaped(cause.title)} ({cause.state}; {', '.join(cause.facts)})"
    if cause.chain:
        yield ""
        rows = tuple(Row(link.time, (link.after, link.text)) for link in cause.chain)
        yield from _table(("time (UTC)", "after onset", "what moved"), rows)
    if cause.evidence:
        yield ""
        yield from (f"- {line.about}: {escaped(line.text)}" for line in cause.evidence)
    for exhibit in report.exhibits:
        yield ""
        if exhibit.id in figures:
            yield f"![{escaped(described(exhibit))}]({figures[exhibit.id]})"
            yield ""
        yield f"*{escaped(exhibit.title)}.* {escaped(exhibit.caption)}"
    if cause.runbook:
        yield ""
        yield f"Runbook: `{cause.runbook}`"


def _table(heads: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(escaped(cell) for cell in (row.head, *row.cells))} |"


def _human(id: str, kept: Mapping[str, str]) -> Iterator[str]:
    one = next(section for section in HUMAN if section.id == id)
    yield from ("", f"## {one.title}", "", begin(id), kept.get(id, f"_{one.prompt}_"), end(id))
