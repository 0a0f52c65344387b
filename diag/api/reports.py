"""``diag report`` for programs: a verdict becomes a postmortem, once or again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diag.errors import DiagError, UsageError

if TYPE_CHECKING:
    from diag.exhibits import Fired
    from diag.model import Verdict
    from diag.renderers.report import Detection, Report

__all__ = ["FORMATS", "check_name", "load_verdict", "report_for", "write_report"]

_ALERTS = 5
_PAGES = ("critical", "warning", "info")
_APART_SECONDS = 300.0
FORMATS = (".md", ".markdown", ".html", ".htm")


def load_verdict(path: Path) -> Verdict | None:
    """The verdict saved at ``path``; None when the file holds something else (a bundle, say)."""
    from diag.renderers import load

    if not path.is_file() or path.suffix.lower() != ".json":
        return None
    return load(path.read_bytes())


def check_name(path: Path) -> None:
    """``UsageError`` when ``path`` does not end like a report: said before a source is asked for minutes."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path.name} is no report", hint="end its name in .md or .html")


def write_report(verdict: Verdict, path: Path, *, redact: Sequence[str] = ()) -> tuple[Path, ...]:
    """Write ``verdict`` as a postmortem to ``path`` (.md or .html) and say what was written.

    What people wrote into the human sections of an earlier report there is kept. Figures lie beside a
    Markdown file, in ``<name>_figures``. ``redact``: kinds of names to hide (hosts, tenants, sessions)."""
    from diag.renderers.redaction import redacted
    from diag.renderers.report.kept import written

    check_name(path)
    suffix = path.suffix.lower()
    told = redacted(verdict, redact) if redact else verdict
    report = report_for(told)
    try:
        kept = written(path.read_text(encoding="utf-8")) if path.exists() else {}
        if suffix in (".html", ".htm"):
            from diag.renderers.report.html import render

            path.write_text(render(report, version=told.version, kept=kept), encoding="utf-8")
            return (path,)
        from diag.renderers.report.postmortem import render as render_markdown

        figures = _figures(report, path)
        names = {id: f"{path.stem}_figures/{file.name}" for id, file in figures.items()}
        path.write_text(render_markdown(report, kept=kept, figures=names), encoding="utf-8")
        return (path, *figures.values())
    except (OSError, UnicodeDecodeError) as error:
        raise DiagError(f"cannot write {path}: {error}", hint="choose another file") from error


def report_for(verdict: Verdict, fired: Sequence[Fired] = ()) -> Report:
    """``verdict`` arranged for a reader. ``fired``: alerts that fired, beside those the verdict knows of."""
    from diag.renderers.report import report_of

    return report_of(verdict, detections=_detections(verdict, (*fired, *verdict.fired)))


def _detections(verdict: Verdict, fired: Sequence[Fired]) -> list[Detection]:
    """What fired, then the shipped alerts that point to the leading cause: its own, then those that page
    first. Without a store's record of a shipped alert nobody can say that one was silent."""
    from diag.assets.rules.catalogue import ALERTS
    from diag.renderers.report import Detection

    shipped = {one.name: one for one in ALERTS}
    told = _once([one for one in fired if one.alert not in shipped or shipped[one.alert].severity in _PAGES])
    found = [Detection(one.alert, fired=True, at=one.time, until=one.until) for one in told]
    pointing = [one for one in ALERTS if verdict.leading in one.causes and one.severity in _PAGES]
    pointing.sort(
        key=lambda one: (
            one.runbook != verdict.leading,
            _PAGES.index(one.severity),
            one.for_seconds,
            one.name,
        )
    )
    silent = [one for one in pointing if one.name not in {each.alert for each in told}]
    # Whoever posts one alert says nothing of the others: only a store that holds ours evaluates ours.
    evaluated = any(one.alert in shipped for one in verdict.fired)
    return found + [
        Detection(one.name, float(one.for_seconds), fired=False if evaluated else None)
        for one in silent[:_ALERTS]
    ]


def _once(fired: Sequence[Fired]) -> list[Fired]:
    """Whoever posted an alert and the store that recorded it tell the same within minutes."""
    kept: list[Fired] = []
    for one in sorted(fired, key=lambda each: each.time or 0.0):
        twin = any(
            one.alert == other.alert and abs((one.time or 0.0) - (other.time or 0.0)) < _APART_SECONDS
            for other in kept
        )
        if not twin:
            kept.append(one)
    return kept


def _figures(report: Report, path: Path) -> dict[str, Path]:
    from diag.renderers.report.charts import png

    if not report.exhibits:
        return {}
    folder = path.parent / f"{path.stem}_figures"
    folder.mkdir(exist_ok=True)
    found: dict[str, Path] = {}
    for exhibit in report.exhibits:
        file = folder / f"{exhibit.id}.png"
        file.write_bytes(png(exhibit))
        found[exhibit.id] = file
    return found
