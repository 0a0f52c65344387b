"""Paints a dashboard's JSON on its own grid, from answers of a store, with matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray
from PIL import Image

from dashboards.src.grid import COLUMNS
from dashboards.src.pictures.asking import Line
from dashboards.src.pictures.units import shown, ticks

__all__ = ["Shot", "painted"]

_COLUMN, _ROW = 54, 22  # pixels
_DPI = 100
_HEAD = 46  # pixels for the board's title
_PALETTE = (
    "#56a64b", "#e0b400", "#3274d9", "#e55400", "#c4162a", "#8f3bb8", "#1f78a4", "#96691f",
    "#447ebc", "#705da0", "#37872d", "#b877d9",
)  # fmt: skip
_COLOURS = {"green": "#56a64b", "red": "#e02f44", "orange": "#ff780a", "yellow": "#e0b400", "blue": "#3274d9",
            "text": "#777777"}  # fmt: skip
_LEGEND_MAX = 6
_BELOW: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.11)}
_INK, _FAINT, _PAPER, _SHEET = "#24292e", "#8e9196", "#ffffff", "#f4f5f5"


@dataclass(frozen=True, slots=True)
class Shot:
    """What a picture shows: the board's JSON, its answers by panel id, the span, the label's onset."""

    board: Mapping[str, Any]
    lines: Mapping[int, Sequence[Line]]
    start: float
    end: float
    onset: float | None
    caption: str


def painted(shot: Shot) -> bytes:
    """The board as a PNG of at most 256 colours."""
    panels = shot.board["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = COLUMNS * _COLUMN, rows * _ROW + _HEAD
    with matplotlib.rc_context({"font.size": 7.5, "font.family": "DejaVu Sans", "axes.linewidth": 0.5}):
        figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor=_SHEET)
        figure.text(
            10 / width, 1 - 17 / height, shot.board["title"], size=12, weight="bold", color=_INK, va="center"
        )
        figure.text(10 / width, 1 - 36 / height, shot.caption, size=8, color=_FAINT, va="center")
        for panel in panels:
            _place(figure, panel, shot, width, height)
        raw = io.BytesIO()
        figure.savefig(raw, format="png", dpi=_DPI, facecolor=_SHEET)
    out = io.BytesIO()
    Image.open(raw).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def _place(figure: Figure, panel: Mapping[str, Any], shot: Shot, width: int, height: int) -> None:
    """Draw a panel's card, title and content where the grid puts it."""
    at = panel["gridPos"]
    left, top = at["x"] * _COLUMN + 4, _HEAD + at["y"] * _ROW + 2
    wide, tall = at["w"] * _COLUMN - 8, at["h"] * _ROW - 4
    if panel["type"] == "row":
        y = 1 - (top + tall / 2) / height
        figure.text(left / width, y, f"▾ {panel['title']}", size=9, weight="bold", color=_INK, va="center")
        return
    card = figure.add_axes((left / width, 1 - (top + tall) / height, wide / width, tall / height))
    card.set_facecolor(_PAPER)
    card.set_xticks([])
    card.set_yticks([])
    for side in card.spines.values():
        side.set_color("#dcdee1")
    figure.text(
        (left + 7) / width,
        1 - (top + 10) / height,
        panel["title"],
        size=8,
        weight="bold",
        color=_INK,
        va="center",
    )
    lines = [line for line in shot.lines.get(panel["id"], ()) if np.isfinite(line.values).any()]
    if not lines:
        card.text(0.5, 0.45, "no data", ha="center", va="center", color=_FAINT, transform=card.transAxes)
        return
    margin = 62 if panel["type"] == "timeseries" else 50
    box = (left + margin, top + 22, wide - margin - 10, tall - 22 - 42)
    axes = figure.add_axes((box[0] / width, 1 - (box[1] + box[3]) / height, box[2] / width, box[3] / height))
    _CONTENT[panel["type"]](axes, panel, lines, shot)


def _plain(axes: Axes) -> None:
    for name, side in axes.spines.items():
        side.set_visible(name in ("bottom", "left"))
        side.set_color("#c7c9cc")
    axes.tick_params(colors=_FAINT, labelsize=6.5, length=2, width=0.5, pad=2)


def _time_axis(axes: Axes, shot: Shot) -> None:
    axes.set_xlim(shot.start, shot.end)
    minutes = (shot.end - shot.start) / 60
    step = next(size for size in (1, 2, 5, 10, 15, 20, 30, 60) if minutes / size <= 7)
    ticks = np.arange(0, 0.98 * minutes, step)
    axes.set_xticks(shot.start + 60 * ticks, [f"{tick:g} min" for tick in ticks])
    if shot.onset is not None:
        axes.axvline(shot.onset, color="#8f3bb8", linewidth=0.8, linestyle=(0, (1, 2)))


def _curves(axes: Axes, panel: Mapping[str, Any], lines: Sequence[Line], shot: Shot) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    unit, custom = defaults["unit"], defaults["custom"]
    _plain(axes)
    if custom.get("stacking", {}).get("mode") == "normal":
        _stacked(axes, lines)
    else:
        for line, colour in zip(lines, cycle(_PALETTE), strict=False):
            style = (0, (4, 2.5)) if _is_dashed(panel, line.legend) else "solid"
            axes.plot(*_broken(line), color=colour, linewidth=1.0, linestyle=style)
    highest = max(float(np.nanmax(line.values)) for line in lines)
    if custom.get("stacking", {}).get("mode") == "normal":
        highest = axes.get_ylim()[1] / 1.05
    _limits(axes, panel, highest, unit)
    axes.set_yticks(ticks(*axes.get_ylim(), unit))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))
    axes.grid(axis="y", color="#ececee", linewidth=0.5)
    axes.set_axisbelow(True)
    _time_axis(axes, shot)
    _legend(
        axes, [(line.legend, colour) for line, colour in zip(lines, cycle(_PALETTE), strict=False)], lines
    )


def _broken(line: Line) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The line with a hole wherever an answer is missing, as Grafana draws it."""
    if len(line.times) < 3:
        return line.times, line.values
    gaps = np.diff(line.times)
    after = np.flatnonzero(gaps > 1.5 * gaps.min()) + 1
    return np.insert(line.times, after, line.times[after] - 1), np.insert(line.values, after, np.nan)


def _is_dashed(panel: Mapping[str, Any], legend: str) -> bool:
    matchers = [override["matcher"] for override in panel["fieldConfig"].get("overrides") or ()]
    return any(re.search(one["options"].strip("/"), legend) for one in matchers)


def _stacked(axes: Axes, lines: Sequence[Line]) -> None:
    grid = np.unique(np.concatenate([line.times for line in lines]))
    below = np.zeros(grid.shape)
    for line, colour in zip(lines, cycle(_PALETTE), strict=False):
        values = np.nan_to_num(np.interp(grid, line.times, line.values, left=0.0, right=0.0))
        axes.fill_between(grid, below, below + values, color=colour, alpha=0.45, linewidth=0)
        below = below + values
        axes.plot(grid, below, color=colour, linewidth=0.8)


def _limits(axes: Axes, panel: Mapping[str, Any], highest: float, unit: str) -> None:
    """The value axis from the panel's bounds, and the alerts' lines where they come into view."""
    defaults = panel["fieldConfig"]["defaults"]
    steps = [step for step in defaults["thresholds"]["steps"] if step.get("value") is not None]
    low, high = defaults.get("min"), defaults.get("max")
    near = [step["value"] for step in steps if step["value"] <= 3 * highest]
    if high is None and highest > 0:
        high = 1.08 * max([highest, *near])
    elif high is None:
        high = 1.3 * min((step["value"] for step in steps), default=1.0)
    if low is not None:
        axes.set_ylim(low - 0.02 * (high - low), high + 0.02 * (high - low))
    for step in steps:
        if low is None or step["value"] <= high:
            colour = _COLOURS[step["color"]]
            axes.axhline(step["value"], color=colour, linewidth=0.9, linestyle=(0, (4, 2)))
    away = [step for step in steps if low is not None and step["value"] > high]
    if away:
        text = "alerts at " + ", ".join(shown(step["value"], unit) for step in away)
        axes.text(1.0, 1.02, text, ha="right", va="bottom", size=6, color=_FAINT, transform=axes.transAxes)


def _legend(axes: Axes, entries: Sequence[tuple[str, str]], lines: Sequence[Line]) -> None:
    """Names below the panel, those with the highest peaks first where there is no room for all."""
    order = sorted(range(len(entries)), key=lambda place: -float(np.nanmax(lines[place].values)))
    kept = sorted(order[:_LEGEND_MAX])
    handles = [matplotlib.lines.Line2D([], [], color=entries[place][1], linewidth=2) for place in kept]
    names = [entries[place][0][:34] or "value" for place in kept]
    if len(entries) > len(kept):
        handles.append(matplotlib.lines.Line2D([], [], linewidth=0))
        names.append(f"and {len(entries) - len(kept)} more")
    wide = axes.get_window_extent().width
    columns = max(1, min(len(names), int(wide / (5.0 * max(map(len, names)) + 34))))
    axes.legend(
        handles[: 2 * columns], names[: 2 * columns], **_BELOW, ncols=columns,
        frameon=False, fontsize=6.5, labelcolor=_INK, handlelength=1.0, columnspacing=1.2, handletextpad=0.5,
        borderaxespad=0.0, labelspacing=0.25,
    )  # fmt: skip


def _states(axes: Axes, panel: Mapping[str, Any], lines: Sequence[Line], shot: Shot) -> None:
    mapping = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    _plain(axes)
    step = float(np.median(np.diff(lines[0].times))) if len(lines[0].times) > 1 else 1.0
    for place, line in enumerate(reversed(lines)):
        for value, result in mapping.items():
            spans = [(time, step) for time in line.times[np.isclose(line.values, float(value))]]
            axes.broken_barh(spans, (place - 0.4, 0.8), color=_COLOURS[result["color"]], linewidth=0)
    axes.set_yticks(range(len(lines)), [line.legend for line in reversed(lines)])
    axes.tick_params(axis="y", labelsize=min(6.5, 90.0 / len(lines)), length=0)
    _make_room(axes, [line.legend for line in lines])
    _time_axis(axes, shot)
    seen = {f"{value:g}" for line in lines for value in np.unique(line.values)}
    used = [(one["text"], _COLOURS[one["color"]]) for value, one in mapping.items() if value in seen]
    handles = [matplotlib.lines.Line2D([], [], color=colour, linewidth=4) for _, colour in used]
    axes.legend(handles, [text for text, _ in used], **_BELOW, ncols=5,
                frameon=False, fontsize=6.5, handlelength=1.0)  # fmt: skip


def _bars(axes: Axes, panel: Mapping[str, Any], lines: Sequence[Line], shot: Shot) -> None:  # noqa: ARG001
    unit = panel["fieldConfig"]["defaults"]["unit"]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    ranked = sorted(lines, key=lambda line: float(line.values[-1]))[-8:]
    _plain(axes)
    axes.set_xticks([])
    for place, line in enumerate(ranked):
        value = float(line.values[-1])
        colour = [step["color"] for step in steps if step.get("value") is None or value >= step["value"]][-1]
        axes.barh(place, value, color=_COLOURS[colour], height=0.62)
        axes.text(value, place, " " + shown(value, unit), va="center", size=6.5, color=_INK)
    axes.set_yticks(range(len(ranked)), [line.legend for line in ranked])
    axes.set_xlim(0, 1.35 * max(float(line.values[-1]) for line in ranked) or 1.0)
    _make_room(axes, [line.legend for line in ranked])


def _make_room(axes: Axes, names: Sequence[str]) -> None:
    """Move the left side to where the longest name on it fits."""
    pixels = max(4.9 * max(map(len, names)) - 34, 0.0)
    box, wide = axes.get_position(), COLUMNS * _COLUMN
    axes.set_position((box.x0 + pixels / wide, box.y0, box.width - pixels / wide, box.height))


def _number(axes: Axes, panel: Mapping[str, Any], lines: Sequence[Line], shot: Shot) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.axis("off")
    line = lines[0]
    axes.fill_between(line.times, line.values, color="#56a64b", alpha=0.25, linewidth=0)
    axes.plot(line.times, line.values, color="#56a64b", linewidth=0.8)
    axes.set_xlim(shot.start, shot.end)
    axes.set_ylim(0, 2.2 * max(float(np.nanmax(line.values)), 1e-9))
    text = shown(float(line.values[-1]), unit)
    style: dict[str, Any] = {"ha": "center", "va": "center", "size": 22, "weight": "bold", "color": "#37872d"}
    axes.text(0.5, 0.72, text, transform=axes.transAxes, **style)


_CONTENT = {"timeseries": _curves, "state-timeline": _states, "bargauge": _bars, "stat": _number}
