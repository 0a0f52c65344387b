"""Every rule file, recording and alert by name: what the writers, the proofs, the dashboards and
``diag assets`` go through."""

from __future__ import annotations

from diag.assets.rules.cache import CACHE
from diag.assets.rules.engine import ENGINE
from diag.assets.rules.fabric import FABRIC
from diag.assets.rules.gpu import GPU
from diag.assets.rules.host import HOST
from diag.assets.rules.llmdiag import LLMDIAG
from diag.assets.rules.meta import META
from diag.assets.rules.model import Alert, RuleFile
from diag.assets.rules.recordings import recordings
from diag.assets.rules.slo import SLO
from diag.engines import ENGINES
from diag.errors import UsageError

__all__ = ["ALERTS", "FILES", "alert"]


def _engine_files() -> tuple[RuleFile, ...]:
    return tuple(
        RuleFile(
            path=f"engines/{engine.name}.yml",
            title=f"Recordings from {engine.title}",
            text="One name for each signal, over 5 minutes, whichever spelling of the metric a target has.",
            needs=(engine.name,),
            recordings=recordings(engine),
        )
        for engine in ENGINES
    )


FILES: tuple[RuleFile, ...] = (*_engine_files(), SLO, ENGINE, CACHE, GPU, FABRIC, LLMDIAG, HOST, META)
"""Every rule file, recordings first: alerts read them."""

ALERTS: tuple[Alert, ...] = tuple(entry for file in FILES for entry in file.alerts)
"""Every alert, in the order of the files."""


def alert(name: str) -> Alert:
    """Return the alert called ``name``; raise ``UsageError`` if there is none."""
    for entry in ALERTS:
        if entry.name == name:
            return entry
    raise UsageError(f"no alert is called {name!r}", hint="see rules/alerts")
