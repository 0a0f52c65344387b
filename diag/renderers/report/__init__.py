"""The postmortem: a saved verdict written up for people who were not there."""

from __future__ import annotations

from diag.renderers.report.content import HUMAN, Human, Report, Row, report_of
from diag.renderers.report.detection import Detection

__all__ = ["HUMAN", "Detection", "Human", "Report", "Row", "report_of"]
