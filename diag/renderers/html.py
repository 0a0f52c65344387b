"""The answer as one HTML file: the postmortem page, ready to be read in a browser or printed."""

from __future__ import annotations

from diag.model import Verdict
from diag.renderers import RenderOptions
from diag.renderers.report import report_of
from diag.renderers.report.html import render as render_report

__all__ = ["render"]


def render(verdict: Verdict, options: RenderOptions) -> str:  # noqa: ARG001  one face for all outputs
    """``verdict`` as a self-contained page. The layout options don't apply: it fits whatever shows it."""
    return render_report(report_of(verdict), version=verdict.version)
