"""Exhibits as figures: SVG that takes its colours from the page, or PNG for a ticket.

matplotlib draws; it is imported only when something is drawn. Colours go in as placeholders and come out as
CSS variables, so that one figure serves a light page, a dark one and paper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from diag.exhibits import Curve, Exhibit, Panel
from diag.quantities import plain, quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["described", "png", "svg"]

_WIDTH_INCHES = 7.4
_PANEL_INCHES = 1.45
_ALONE_INCHES = 3.0
_LINES = ("#0b5fa5", "#c2410c", "#15803d", "#7e22ce")
_INK, _GRID, _MARK, _EVENT = "#1f2328", "#d0d7de", "#b42318", "#6b7280"
_VARIABLES: Mapping[str, str] = {
    _INK: "--ink", _GRID: "--grid", _MARK: "--mark", _EVENT: "--event",
    **{color: f"--line-{n}" for n, color in enumerate(_LINES, 1)},
}  # fmt: skip
_SETTINGS: Mapping[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "diag", "font.family": ["sans-serif"], "font.size": 8.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": _GRID, "axes.labelcolor": _INK,
    "text.color": _INK, "xtick.color": _INK, "ytick.color": _INK, "axes.grid": True, "grid.color": _GRID,
    "grid.linewidth": 0.5, "legend.frameon": False, "text.parse_math": False, "axes.titlesize": 9.0,
}  # fmt: skip


def svg(exhibit: Exhibit) -> str:
    """An ``<svg>`` element without a prolog; colours are CSS variables with their light value as fallback."""
    drawn = io.StringIO()
    with _figure(exhibit) as figure:
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    # Ids would clash between the figures of one page.
    text = re.sub(r'\bid="', f'id="{exhibit.id}-', text)
    text = re.sub(r'(xlink:href|href)="#', rf'\1="#{exhibit.id}-', text)
    text = re.sub(r"url\(#", f"url(#{exhibit.id}-", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var({variable}, {color})")
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def png(exhibit: Exhibit, dots_per_inch: int = 144) -> bytes:
    """The same on white."""
    drawn = io.BytesIO()
    with _figure(exhibit) as figure:
        figure.savefig(drawn, format="png", dpi=dots_per_inch, facecolor="white", metadata={"Software": None})
    return drawn.getvalue()


def described(exhibit: Exhibit) -> str:
    """What the figure shows, for whoever cannot see it: each curve's range."""
    parts = [_range(panel, curve) for panel in exhibit.panels for curve in panel.curves if not curve.points]
    return f"{plain(exhibit.title)}. {'; '.join(parts)}."


def _range(panel: Panel, curve: Curve) -> str:
    known = [v for v in curve.y if v is not None]
    name = f"{panel.title}, {curve.label}" if curve.label else panel.title
    if not known:
        return f"{plain(name)}: nothing measured"
    low, high = quantity(min(known), panel.unit), quantity(max(known), panel.unit)
    return f"{plain(name)}: {low} to {high}, at the end {quantity(known[-1], panel.unit)}"


@contextmanager
def _figure(exhibit: Exhibit) -> Iterator[Figure]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(cast(Any, dict(_SETTINGS))):
        count = len(exhibit.panels)
        height = _ALONE_INCHES if count == 1 else _PANEL_INCHES * count + 0.4
        # A figure of its own, never pyplot's: reports may be drawn in several threads at once.
        figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
        rows = figure.subplots(count, 1, sharex=exhibit.x_unit == "time", squeeze=False)[:, 0]
        for axes, panel in zip(rows, exhibit.panels, strict=True):
            _draw(axes, panel, exhibit)
        _axis(rows[-1], exhibit)
        yield figure


def _draw(axes: Axes, panel: Panel, exhibit: Exhibit) -> None:
    scale, unit = _scale(panel)
    axes.set_title(f"{plain(panel.title)} ({unit})" if unit else plain(panel.title), loc="left")
    for number, curve in enumerate(panel.curves):
        color = _LINES[_colour_of(panel, number) % len(_LINES)]
        x = [_moment(v) for v in curve.x] if exhibit.x_unit == "time" else list(curve.x)
        y = [float("nan") if v is None else v * scale for v in curve.y]
        label = plain(curve.label) or None
        if curve.points:
            axes.plot(x, y, ".", color=color, alpha=0.35, markersize=4, label=label)
        else:
            axes.plot(x, y, color=color, linewidth=1.6, label=label)
    if panel.log:
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
            axis.set_minor_formatter("")
    elif not any((v or 0.0) < 0 for curve in panel.curves for v in curve.y):
        axes.set_ylim(bottom=0)
    if any(curve.label for curve in panel.curves):
        axes.legend(loc="best" if panel.log else "upper left", fontsize=7.5)
    if exhibit.x_unit == "time":
        for mark in exhibit.marks:
            solid = mark.kind == "onset"
            axes.axvline(
                _moment(mark.time), color=_MARK if solid else _EVENT, linewidth=1.0,
                linestyle="-" if solid else ":",
            )  # fmt: skip


def _colour_of(panel: Panel, number: int) -> int:
    """Dots and the curve fitted to them share a colour."""
    curve = panel.curves[number]
    names = list(dict.fromkeys(c.label.split(",")[0] for c in panel.curves))
    return names.index(curve.label.split(",")[0])


def _axis(axes: Axes, exhibit: Exhibit) -> None:
    if exhibit.x_unit != "time":
        axes.set_xlabel(plain(exhibit.x_unit))
        return
    from matplotlib.dates import AutoDateLocator, DateFormatter

    axes.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=8))  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlabel("UTC")
    top = axes.figure.axes[0]
    for mark in exhibit.marks:
        if mark.kind == "onset":
            top.annotate(
                plain(mark.text), (_moment(mark.time), 1.0), xycoords=("data", "axes fraction"),
                xytext=(3, -2), textcoords="offset points", color=_MARK, fontsize=7.5, va="top",
            )  # fmt: skip


def _moment(time: float) -> Any:
    return datetime.fromtimestamp(time, UTC)


_SCALES: Mapping[str, tuple[float, str]] = {"ratio": (100.0, "%"), "hertz": (1e-6, "MHz")}


def _scale(panel: Panel) -> tuple[float, str]:
    """Shares in per cent, bytes in GiB; everything else in its own unit."""
    if panel.unit == "bytes":
        return 1 / 2**30, "GiB"
    return _SCALES.get(panel.unit, (1.0, panel.unit))
