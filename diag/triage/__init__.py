"""Case -> findings -> assessments -> verdict. The only place that ranks."""

from __future__ import annotations

from diag.triage.run import triage

__all__ = ["triage"]
