"""The postmortem as one HTML file: nothing is loaded from anywhere, every text is escaped.

jinja2 escapes whatever goes in; only the figures (drawn here) and what people wrote into an earlier file of
the same kind pass as they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from diag.exhibits import Exhibit
from diag.renderers.report.charts import described, svg
from diag.renderers.report.content import HUMAN, Report, Row
from diag.renderers.report.kept import begin, end

__all__ = ["render"]


def render(
    report: Report, *, version: str, kept: Mapping[str, str] | None = None, state: str = "",
    refresh_seconds: int = 0, runbooks: str = "",
) -> str:  # fmt: skip
    """``report`` as a page. ``kept``: what people wrote before, by section; ``state``: a word beside the
    status ("firing"); ``refresh_seconds``: the page asks for itself anew, as long as the alert fires;
    ``runbooks``: where a runbook's page is found by its id, if anywhere."""
    cause = report.page.leading
    chain = tuple(Row(link.time, (link.after, link.text)) for link in cause.chain) if cause else ()
    text: str = _template().render(
        report=report, version=version, state=state, refresh_seconds=refresh_seconds, chain=chain,
        runbooks=runbooks,
        kept={id: Markup(body) for id, body in (kept or {}).items()},
        humans={one.id: one for one in HUMAN},
        figures={one.id: _figure(one) for one in report.exhibits},
        begin=lambda id: Markup(begin(id)), end=lambda id: Markup(end(id)),
    )  # fmt: skip
    return text + "\n"


@cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("diag.renderers.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html.j2")


def _figure(exhibit: Exhibit) -> Markup:
    """The drawing with a name and a description that a screen reader tells."""
    opening = Markup('<svg role="img" aria-label="{}" ').format(described(exhibit))
    return Markup(svg(exhibit).replace("<svg ", opening, 1))
