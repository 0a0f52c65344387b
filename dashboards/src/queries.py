"""PromQL of panels: canonical signals as the engine files define them, over the board's variables.

Boards read the raw metrics, not the recorded ones, so that they show something before any rule is
loaded and keep Grafana's own window.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

from dashboards.src.model import Query
from diag.engines import ENGINES, Definition, Engine
from diag.errors import SignalError
from diag.signals import signal
from diag.signals.algebra import Aggregate, Expr, FirstOf, Matcher, Quantile, selects
from diag.signals.promql import write
from diag.signals.vocabulary import Scope

__all__ = ["ENGINE", "EXPORTER", "HOST", "PROXIED", "SESSIONS", "WINDOW", "expression", "of", "raw"]

WINDOW = "$__rate_interval"
"""Grafana's look-back: four scrapes, or more where a pixel is wider."""

ENGINE = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
"""Matchers of an engine's own series; ``model_name=~"$model"`` joins where the series bear it."""

HOST = 'cluster=~"$cluster",instance=~"$host"'
"""Matchers of what exporters tell about GPUs and hosts."""

SESSIONS = 'cluster=~"$cluster",model=~"$model"'
"""Matchers of the session feeds' series by model."""

EXPORTER = 'cluster=~"$cluster"'
"""Matchers of the session feeds' other series: their address is no engine's."""

PROXIED = 'cluster=~"$cluster",engine=~"$instance"'
"""Matchers of what diag-exporter tells of an engine it asks."""

# Written as a window that nothing else could mean, then replaced.
_MARK_SECONDS = 7919.0
_TARGET_LABELS = ("cluster", "job")
_SLOW_EXPORTERS = "30s"
_T = TypeVar("_T", bound=Expr)
_LEGENDS = {
    "vllm": "{{instance}}",
    "sglang": "{{instance}}",
    "nvidia_gpu_exporter": "{{instance}} {{uuid}}",
    "kubernetes": "{{pod}} {{container}}",
}
_BY_SCOPE = {Scope.GPU: "{{instance}} GPU {{gpu}}"}


def of(name: str, suffix: str = "", absent: dict[str, str] | None = None) -> tuple[Query, ...]:
    """A query for each producer that delivers the canonical signal ``name``.

    ``suffix`` follows the series' name in the legend (``p95``). ``absent`` says for a producer why no
    incident at hand shows it."""
    found = []
    for engine in ENGINES:
        if isinstance(engine.signals.get(name), Definition):
            scope = signal(name).scope
            legend = _LEGENDS.get(engine.name, _BY_SCOPE.get(scope, "{{instance}}"))
            step = "" if scope is Scope.ENGINE else _SLOW_EXPORTERS
            reason = (absent or {}).get(engine.name, "")
            text = f"{legend} {suffix}".strip()
            found.append(Query(expression(name, engine), text, engine.name, step, reason))
    return tuple(found)


def expression(name: str, engine: Engine) -> str:
    """PromQL of the canonical signal ``name`` from ``engine`` over the board's variables.

    Raises ``SignalError`` where that producer does not deliver it."""
    definition = engine.signals.get(name)
    if not isinstance(definition, Definition):
        raise SignalError(f"{engine.title} does not deliver {name!r}")
    own = _bears_model(engine, definition.expr)
    text = write(_per_target(definition.expr), _MARK_SECONDS, _matchers(signal(name).scope, own))
    return text.replace(f"{int(_MARK_SECONDS)}s", WINDOW)


def raw(expr: str, legend: str, producer: str, absent: str = "") -> Query:
    """A query for what has no canonical signal; ``[W]`` stands for the window."""
    step = "" if producer in ("vllm", "sglang") else _SLOW_EXPORTERS
    return Query(expr.replace("[W]", f"[{WINDOW}]"), legend, producer, step, absent)


def _bears_model(engine: Engine, expr: Expr) -> bool:
    own = all(name.startswith(f"{engine.name}:") for part in selects(expr) for name in part.names)
    return own and engine.name in ("vllm", "sglang")


def _matchers(scope: Scope, model: bool) -> tuple[Matcher, ...]:
    pairs = [("cluster", "$cluster")]
    if scope is Scope.ENGINE:
        pairs += [("job", "$job"), ("instance", "$instance")]
    elif scope in (Scope.GPU, Scope.NODE):
        pairs += [("instance", "$host")]
    if model:
        pairs.append(("model_name", "$model"))
    return tuple(Matcher(label, "=~", value) for label, value in pairs)


def _per_target(expr: _T) -> _T:
    """``expr`` with the target's cluster and job kept by every aggregation: two targets of one name are
    two lines, never their sum."""
    changes: dict[str, object] = {}
    for item in fields(expr):
        value = getattr(expr, item.name)
        if isinstance(value, Expr):
            changes[item.name] = _per_target(value)
        elif isinstance(expr, FirstOf) and item.name == "exprs":
            changes["exprs"] = tuple(_per_target(part) for part in expr.exprs)
    if isinstance(expr, Aggregate | Quantile):
        changes["by"] = (*(label for label in _TARGET_LABELS if label not in expr.by), *expr.by)
    return replace(expr, **changes)  # type: ignore[arg-type]
