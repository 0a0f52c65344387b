"""Idioms that several engine files share, and the labels each scope keeps for joins."""

from __future__ import annotations

from diag.signals.algebra import (
    Aggregate,
    Binary,
    Clamp,
    Expr,
    FirstOf,
    Gauge,
    Keep,
    Quantile,
    Rate,
    Scale,
    Select,
    mean_of,
    total,
)

__all__ = [
    "ENGINE_BY",
    "GPU_BY",
    "GPU_LABELS",
    "NODE_BY",
    "NODE_LABELS",
    "added",
    "at",
    "mean",
    "quantile",
    "rate",
    "same_targets",
    "share",
    "smallest",
    "valid_rate",
]

ENGINE_BY = ("instance", "pod", "node", "namespace")
GPU_BY = ("instance", "Hostname", "hostname", "node", "gpu", "UUID", "uuid", "GPU_I_ID")
NODE_BY = ("instance", "node", "nodename")

# ``gpu`` is the UUID for us; DCGM's own ``gpu`` label is the index, which changes over a reboot.
GPU_LABELS = {
    "UUID": "gpu",
    "uuid": "gpu",
    "gpu": "gpu_index",
    "Hostname": "node",
    "hostname": "node",
    "GPU_I_ID": "mig_instance",
}
NODE_LABELS = {"nodename": "node"}


def rate(select: Select, by: tuple[str, ...]) -> Expr:
    """Counter per second, summed."""
    return total(Rate(select), by)


def mean(family: Select, by: tuple[str, ...]) -> Expr:
    """Mean of a histogram's observations in the window; NaN when there were none."""
    return mean_of(family, by)


def quantile(q: float, family: Select, by: tuple[str, ...]) -> Expr:
    """Quantile of a histogram's observations in the window."""
    return Quantile(q, family, by)


def at(expr: Expr, by: tuple[str, ...]) -> Expr:
    """The largest value of each label set: for what several ranks or slices report alike."""
    return Aggregate("max", expr, by)


def smallest(expr: Expr, by: tuple[str, ...]) -> Expr:
    """The smallest value of each label set."""
    return Aggregate("min", expr, by)


def share(expr: Expr) -> Expr:
    """A value cut to 0 … 1: rates extrapolate a little beyond."""
    return Clamp(expr, 0.0, 1.0)


def added(*exprs: Expr) -> Expr:
    """The sum of those of ``exprs`` that have a value (plain ``+`` needs all of them).

    Each must be aggregated by the same labels. Only for counts that a producer leaves out while
    they are zero or not configured: as long as one is there, the others count as zero.
    """
    zeros = [Scale(expr, 0.0) for expr in exprs]
    terms = [
        FirstOf((expr, *(zero for other, zero in enumerate(zeros) if other != place)))
        for place, expr in enumerate(exprs)
    ]
    result: Expr = terms[0]
    for term in terms[1:]:
        result = Binary("+", result, term)
    return result


def same_targets(expr: Expr, of: Select, by: tuple[str, ...]) -> Expr:
    """``expr``, only for label sets ``by`` that also have ``of``: parts an engine's ``process_*``
    and HTTP series from those of every other program."""
    return Binary("+", expr, Scale(at(Gauge(of), by), 0.0))


def valid_rate(select: Select, limit: float) -> Expr:
    """Rate of a counter whose value lies in 0 … ``limit``; a sentinel above it stands still and
    would pass for a healthy zero."""
    return Binary("+", Rate(select), Scale(Keep(Gauge(select, "max"), 0.0, limit), 0.0))
