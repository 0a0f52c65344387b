"""The loop: one thread looks, this one shows and listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from diag.api.watching import Watching
from diag.errors import DiagError
from diag.quantities import span
from diag.watch.history import Change, History
from diag.watch.keys import Keys
from diag.watch.screen import Showing, screen

__all__ = ["run"]

_TICK_SECONDS = 0.15
_WINDOW = "window: last "
_SIGNALS = (None, 8, 6, 5, 4, 3, 2, 1, 0)
_WINDOWS = (300.0, 600.0, 900.0, 1800.0, 3600.0, 2 * 3600.0, 6 * 3600.0, 24 * 3600.0)


@dataclass(slots=True)
class _Shared:
    """Between the two threads, under ``lock``. ``asked_at``: when the look under way began, None without
    one; unix seconds."""

    history: History = field(default_factory=History)
    asked_at: float | None = None
    saving: threading.Thread | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    wanted: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


def run(
    watching: Watching, showing: Showing, console: Console, clock: Callable[[], float] = time.time
) -> None:
    """Until q or Ctrl-C."""
    shared = _Shared()
    looker = threading.Thread(target=_look_on, args=(watching, showing, shared, clock), daemon=True)
    looker.start()
    with Keys() as keys, Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while not shared.ended.is_set():
            with shared.lock:
                asked = shared.asked_at
                shared.history.waited_seconds = 0.0 if asked is None else clock() - asked
                live.update(_fitted(shared.history, showing, console), refresh=True)
            for key in keys.pressed(_TICK_SECONDS):
                _react(key, watching, showing, shared)


def _fitted(history: History, showing: Showing, console: Console) -> RenderableType:
    """The screen with as many signals as leave room for causes, changes and keys."""
    shown: RenderableType = ""
    for most in _SIGNALS:
        shown = screen(history, showing, console.width, most_signals=most)
        if len(console.render_lines(shown, pad=False)) <= console.height:
            break
    return shown


def _look_on(watching: Watching, showing: Showing, shared: _Shared, clock: Callable[[], float]) -> None:
    while not shared.ended.is_set():
        if not showing.paused:
            _look(watching, showing, shared, clock)
        shared.wanted.wait(showing.every_seconds)
        shared.wanted.clear()


def _look(watching: Watching, showing: Showing, shared: _Shared, clock: Callable[[], float]) -> None:
    with shared.lock:
        shared.asked_at = clock()
    try:
        look = watching.look(showing.every_seconds)
    except DiagError as error:
        with shared.lock:
            shared.history.failed(clock(), str(error))
    except Exception as error:  # one odd answer must not end the watch
        with shared.lock:
            shared.history.failed(clock(), f"{type(error).__name__}: {error}")
    else:
        with shared.lock:
            # Who pauses wants to read what is there, also when a look was under way.
            if not showing.paused:
                shared.history.seen(look)
    with shared.lock:
        shared.asked_at = None


def _react(key: str, watching: Watching, showing: Showing, shared: _Shared) -> None:
    showing.said = ""
    if key == "q":
        shared.ended.set()
        shared.wanted.set()
    elif key == "p":
        showing.paused = not showing.paused
        shared.wanted.set()
    elif key in "+-":
        with shared.lock:
            _resize(watching, showing, shared.history, wider=key == "+")
        shared.wanted.set()
    elif key == "0":
        showing.opened = ""
    elif key in "123456":
        with shared.lock:
            places = shared.history.ranking(6)
        if int(key) <= len(places):
            showing.opened = places[int(key) - 1].id
    elif key == "s":
        _save(watching, showing, shared)


def _resize(watching: Watching, showing: Showing, history: History, *, wider: bool) -> None:
    now = watching.window_seconds
    fitting = [w for w in _WINDOWS if (w > now if wider else w < now)]
    if fitting:
        watching.window_seconds = showing.window_seconds = min(fitting) if wider else max(fitting)
        # What turns with the next look may have turned because of this; a way through windows is one change.
        if history.changes and history.changes[-1].text.startswith(_WINDOW):
            history.changes.pop()
        history.changes.append(Change(time.time(), f"{_WINDOW}{span(showing.window_seconds)}"))


def _save(watching: Watching, showing: Showing, shared: _Shared) -> None:
    """In a thread of its own: a store that hangs must not take the keys along."""
    if shared.saving is not None and shared.saving.is_alive():
        return

    def save() -> None:
        showing.said = _saved(watching)

    showing.said = "saving a bundle …"
    shared.saving = threading.Thread(target=save, daemon=True)
    shared.saving.start()


def _saved(watching: Watching) -> str:
    name = f"diag-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.zip"
    try:
        return f"wrote {watching.save(Path(name))}"
    except DiagError as error:
        return f"no bundle: {error}"
