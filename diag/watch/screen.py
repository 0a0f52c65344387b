"""What is on the screen, from what is known: no clock, no terminal, no key is asked here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diag.api.watching import Look
from diag.detectors.findings import fleet_series
from diag.model import Series
from diag.quantities import clock, percent, plain, quantity, span
from diag.renderers.page import Cause, page
from diag.signals import SIGNALS
from diag.watch.history import History, Place
from diag.watch.sparks import GAP, spark

__all__ = ["Showing", "screen"]

_SIGNALS = (
    "ttft_seconds_p95",
    "e2e_seconds_mean",
    "inter_token_seconds_mean",
    "running_requests",
    "waiting_requests",
    "kv_cache_usage_ratio",
    "preemptions_per_second",
    "prefix_cache_hit_ratio",
    "prompt_tokens_per_request_mean",
    "first_tokens_per_second",
    "gpu_utilization_ratio",
    "gpu_sm_clock_hertz",
)
_LABELS = {
    "ttft_seconds_p95": "first token p95",
    "e2e_seconds_mean": "answer",
    "inter_token_seconds_mean": "between tokens",
    "running_requests": "running",
    "waiting_requests": "waiting",
    "kv_cache_usage_ratio": "KV cache",
    "preemptions_per_second": "preemptions",
    "prefix_cache_hit_ratio": "cache hits",
    "prompt_tokens_per_request_mean": "prompt length",
    "first_tokens_per_second": "requests",
    "gpu_utilization_ratio": "GPU use",
    "gpu_sm_clock_hertz": "SM clock",
}
_PLACES, _CHANGES = 6, 5
_PATIENCE_SECONDS = 5.0
_VALUES_WIDTH, _LEAST_COURSE = 48, 8  # of a signal's row without its course
_BARS_WIDTH, _LEAST_TITLE = 40, 16  # of a cause's row without its name and title
_COLORS = {"supported": "bold red", "undecided": "yellow"}


@dataclass(slots=True)
class Showing:
    """How it is looked at. ``opened``: id of a hypothesis told in full; ``said``: a line for the operator."""

    source: str
    window_seconds: float
    every_seconds: float
    paused: bool = False
    opened: str = ""
    said: str = ""


def screen(history: History, showing: Showing, width: int, most_signals: int | None = None) -> RenderableType:
    """Everything, top down; ``width`` in characters, ``most_signals`` where there is no room for all."""
    parts: list[RenderableType] = [_head(history, showing)]
    if history.last is None:
        parts.append(Text(history.lost or "looking for the first time …", style="yellow"))
    else:
        parts += [_felt(history.last), Text("")]
        if most_signals != 0:
            parts += [_signals(history, width, most_signals), Text("")]
        parts += _body(history, showing, width)
    if history.changes:
        parts += [Text(""), *_changes(history)]
    parts += [Text(""), _foot(showing)]
    return Group(*parts)


def _head(history: History, showing: Showing) -> Text:
    text = Text("diag watch  ", style="bold")
    text.append(plain(showing.source))
    text.append(f"  last {span(showing.window_seconds)}, every {span(showing.every_seconds)}", style="dim")
    if history.last is not None:
        text.append(f"  seen {clock(history.last.time)} UTC", style="dim")
    if showing.paused:
        text.append("  paused", style="bold yellow")
    # A page is read for as long as the pause between two looks; a store that hangs keeps what is old here.
    if history.waited_seconds > showing.every_seconds + _PATIENCE_SECONDS and not history.lost:
        text.append(f"  no answer for {span(round(history.waited_seconds))}", style="bold yellow")
    if history.lost and history.last is not None:
        since = f" since {clock(history.lost_since)} UTC" if history.lost_since else ""
        text.append(
            f"\nsource does not answer{since}; what follows is old\n{plain(history.lost)}", style="bold red"
        )
    return text


def _felt(look: Look) -> Text:
    style = "bold red" if look.verdict.leading else "green"
    return Text(plain(look.verdict.summary), style=style)


def _signals(history: History, width: int, most: int | None) -> Table:
    look = history.last
    assert look is not None
    room = min(60, width - _VALUES_WIDTH)
    # What cannot be asked is no longer now.
    columns = ["signal", "course", "last" if history.lost else "now", "before"]
    if room < _LEAST_COURSE:
        columns.remove("course")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="dim")
    for name in columns:
        table.add_column(name, no_wrap=True, justify="left" if name in ("signal", "course") else "right")
    for name, series in _measured(look)[:most]:
        unit = SIGNALS[name].unit
        values = [_told(_now(series), unit), _told(_before(look, series), unit)]
        course = [spark(series.values, room)] if "course" in columns else []
        table.add_row(_LABELS[name], *course, *values)
    return table


def _measured(look: Look) -> list[tuple[str, Series]]:
    found = ((name, fleet_series(look.case, name)) for name in _SIGNALS)
    return [
        (name, series) for name, series in found if series is not None and np.isfinite(series.values).any()
    ]


def _now(series: Series) -> float | None:
    """The last value; None where the last two points hold none: what is old is not now."""
    recent = series.values[-2:]
    known = recent[np.isfinite(recent)]
    return float(known[-1]) if len(known) else None


def _before(look: Look, series: Series) -> float | None:
    if look.verdict.baseline is None:
        return None
    values = series.within(look.verdict.baseline)
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _told(value: float | None, unit: str) -> str:
    return GAP if value is None else quantity(value, unit)


def _body(history: History, showing: Showing, width: int) -> Iterator[RenderableType]:
    assert history.last is not None
    if showing.opened:
        cause = _cause(history.last, showing.opened)
        if cause is not None:
            yield from _told_in_full(cause)
            return
    places = history.ranking(_PLACES)
    if places:
        yield _ranked(places, width, told=bool(history.last.verdict.leading))
    else:
        yield Text("no cause stands out", style="dim")
    if faint := history.faint():
        yield Text(f"{faint} more undecided, each below 1 %", style="dim")


def _ranked(places: list[Place], width: int, *, told: bool) -> Table:
    """``told``: the first is told as the cause."""
    longest = max(len(one.id) for one in places)
    bars = longest + _BARS_WIDTH <= width
    room = width - longest - _BARS_WIDTH
    columns = ["", "cause", "state", "confidence", "", *(["what it is"] if room >= _LEAST_TITLE else [])]
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="dim")
    for name in columns:
        table.add_column(name, no_wrap=True)
    for number, one in enumerate(places, 1):
        style = _COLORS.get(one.state, "") if number == 1 and told else ""
        known = percent(one.confidence)
        title = [_cut(one.title, room)] if room >= _LEAST_TITLE else []
        row: list[RenderableType] = [
            str(number),
            Text(one.id, style=style),
            one.state,
            f"{_bar(one)} {known}" if bars else known,
        ]
        table.add_row(*row, _moved(one), *title)
    return table


def _bar(one: Place) -> str:
    full = round(one.confidence * 10)
    return f"{'█' * full}{'░' * (10 - full)}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _moved(one: Place) -> Text:
    if one.new:
        return Text("new", style="green")
    if one.moved:
        return Text(
            f"{'▲' if one.moved > 0 else '▼'}{abs(one.moved)}", style="green" if one.moved > 0 else "dim"
        )
    if abs(one.rose) >= 0.05:
        return Text("↑" if one.rose > 0 else "↓", style="dim")
    return Text("")


def _cause(look: Look, id: str) -> Cause | None:
    told = page(look.verdict, len(look.verdict.assessments))
    known = [one for one in (told.leading, *told.others) if one is not None]
    return next((one for one in known if one.id == id), None)


def _told_in_full(cause: Cause) -> Iterator[RenderableType]:
    yield Text(f"{cause.id}: {cause.title}", style="bold")
    yield Text(f"{cause.state}; {', '.join(cause.facts)}", style="dim")
    for hit in cause.hits:
        yield Text(f"  hits {hit}")
    for line in cause.evidence:
        yield Text(f"  {line.about}: {line.text}", style="" if line.about == "for" else "yellow")
    for action in cause.actions:
        yield Text(f"  do ({action.about}): {action.text}", style="cyan")


def _changes(history: History) -> Iterator[Text]:
    yield Text("just changed", style="dim")
    for one in list(history.changes)[-_CHANGES:][::-1]:
        yield Text(f"  {clock(one.time)}  {plain(one.text)}", no_wrap=True, overflow="ellipsis")


def _foot(showing: Showing) -> Text:
    text = Text("p pause   - + window   1-6 open   0 back   s save a bundle   q quit", style="dim")
    if showing.said:
        text.append(f"\n{plain(showing.said)}", style="cyan")
    return text
