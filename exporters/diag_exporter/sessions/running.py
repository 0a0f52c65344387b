"""Feeds, joiner and table put together, and the thread that steps the feeds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from diag_exporter.engine.lengths import max_length
from diag_exporter.families import Collector, Family, Group, NoData, Row, Rows
from diag_exporter.sessions import SessionOptions
from diag_exporter.sessions.events import Sink
from diag_exporter.sessions.feeds.engine_log import LOG_FAMILIES, EngineLog, log_rows
from diag_exporter.sessions.feeds.joining import JoinedSink, Joiner
from diag_exporter.sessions.feeds.json_log import JsonLog
from diag_exporter.sessions.feeds.otlp import SpanReader, Spans
from diag_exporter.sessions.feeds.otlp_server import OtlpReceiver, OtlpServer
from diag_exporter.sessions.feeds.state import FeedError, FeedState
from diag_exporter.sessions.identity import Identifier, Key, load_key, new_key
from diag_exporter.sessions.series import FAMILIES, session_rows
from diag_exporter.sessions.table import Limits, SessionTable

__all__ = ["FEED_FAMILIES", "EngineLogCollector", "Sessions", "Steppable", "Stepper", "log_names"]

_LOG = logging.getLogger("diag_exporter")
_IDLE_SECONDS = 0.25
_KEY_CHECK_SECONDS = 3600.0

_SRC = "the feed itself"
FEED_FAMILIES: tuple[Family, ...] = (
    Family("llmdiag_feed_up", "gauge", "Whether the feed can bring events now (file readable, address had).",
           ("feed", "kind"), "No feed is set up.", _SRC),
    Family("llmdiag_feed_events_total", "counter", "Events (engine logs: lines) taken in.",
           ("feed", "kind"), "No feed is set up.", _SRC),
    Family("llmdiag_feed_lost_total", "counter",
           "Lines or spans not taken in: unusable (not readable), too_long; skipped ones are no requests.",
           ("feed", "kind", "reason"), "No feed is set up.", _SRC),
    Family("llmdiag_feed_rotations_total", "counter", "Times the file was replaced or emptied.",
           ("feed", "kind"), "The feed is no file.", _SRC),
    Family("llmdiag_feed_last_event_timestamp_seconds", "gauge",
           "Time of the newest event by its own clock: far from now means a late feed or a wrong clock.",
           ("feed", "kind"), "Nothing came yet.", _SRC),
    Family("llmdiag_feed_joined_total", "counter",
           "Requests told by a log (or the proxy) and by a span, made one.",
           (), "There is no receiver of traces, or neither log nor proxy.", _SRC),
    Family("llmdiag_session_key_created_timestamp_seconds", "gauge",
           "When the key of the session hash was made; a renewal makes every session look new.",
           (), "", _SRC),
)  # fmt: skip


class Steppable(Protocol):
    """What the stepping thread moves on."""

    state: FeedState

    def step(self) -> bool:
        """Take in what is there; whether there may be more right now."""

    def close(self) -> None:
        """Let go."""


class Stepper:
    """One daemon thread that steps all followed files, gently when nothing comes."""

    def __init__(self, feeds: Sequence[Steppable], *, idle_seconds: float = _IDLE_SECONDS) -> None:
        self._feeds = feeds
        self._idle = idle_seconds
        self._told = [""] * len(feeds)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin; more than once does no harm."""
        with self._lock:
            if self._thread is None and self._feeds and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="feeds", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop, and close the feeds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5)
        for feed in self._feeds:
            feed.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            busy = False
            for position, feed in enumerate(self._feeds):
                busy |= _stepped(feed)
                if feed.state.error != self._told[position]:
                    self._told[position] = feed.state.error
                    _LOG.warning("%s: %s", feed.state.name, feed.state.error or "can be read again")
            if not busy:
                self._stopping.wait(self._idle)


def _stepped(feed: Steppable) -> bool:
    try:
        return feed.step()
    except Exception as error:  # one bad file must not end the others
        # Its kind only: the message may quote what was in the file.
        feed.state.error = f"unexpected {type(error).__name__}"
        return False


def log_names(paths: Sequence[Path]) -> list[str]:
    """File names; whole paths where two files are called the same."""
    names = [path.name for path in paths]
    return [str(path) if names.count(path.name) > 1 else path.name for path in paths]


class Sessions:
    """Everything about sessions in one process."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self.key: Key = load_key(options.key_file) if options.key_file else new_key()
        self._key_checked = time.monotonic()
        self.on_key: list[Callable[[Key], None]] = []
        self.identifier = Identifier(self.key)
        self.table = SessionTable(
            Limits(
                sessions=options.sessions, tenants=options.tenants, models=options.models,
                active_seconds=options.active_seconds, window_seconds=options.window_seconds,
                forget_seconds=max(4 * options.active_seconds, 3600.0),
            )
        )  # fmt: skip
        self.max_length = options.max_length or max_length
        both = (bool(options.logs) or options.proxied) and options.otlp_listen is not None
        self.joiner = Joiner(self.table) if both else None
        self.sink: Sink = JoinedSink(self.joiner, self.table) if self.joiner is not None else self.table
        self.logs = [
            JsonLog(
                path, self.joiner or self.table, self.identifier,
                preset=options.preset, fields=dict(options.fields), from_start=options.from_start,
                with_ids=both,
            )
            for path in options.logs
        ]  # fmt: skip
        self.engine_logs = [
            EngineLog(path, name)
            for path, name in zip(options.engine_logs, log_names(options.engine_logs), strict=True)
        ]
        self.otlp: OtlpServer | None = None
        self.receiver: OtlpReceiver | None = None
        if options.otlp_listen is not None:
            host, port = options.otlp_listen
            reader = SpanReader(self.identifier, session_in_id=options.session_in_request_id)
            self.receiver = OtlpReceiver(reader, self._add_spans, f"{host}:{port}")
        self._stepper = Stepper([*self.logs, *self.engine_logs])
        self._closed = False

    def start(self) -> None:
        """Begin to take in events; more than once does no harm. An address that is taken is asked for
        again next time: the other feeds need not wait for it."""
        if self._closed:
            return
        self._stepper.start()
        if self.receiver is not None and self.otlp is None and self._options.otlp_listen is not None:
            try:
                self.otlp = OtlpServer(*self._options.otlp_listen, self.receiver)
            except FeedError as error:
                if not self.receiver.state.error:
                    _LOG.error("%s", error)
                self.receiver.state.error = str(error)
                return
            self.receiver.state.error = ""
            self.otlp.start()

    def close(self) -> None:
        """Stop all feeds."""
        self._closed = True
        self._stepper.close()
        if self.otlp is not None:
            self.otlp.close()
            self.otlp = None

    def collectors(self) -> list[Collector]:
        """What the sampler calls."""
        made: list[Collector] = [_SessionCollector(self), _FeedCollector(self)]
        if self.engine_logs:
            made.append(EngineLogCollector(self.engine_logs, self.start, self.close))
        return made

    def states(self) -> list[FeedState]:
        """How each feed fares."""
        held = [log.state for log in self.logs] + [log.state for log in self.engine_logs]
        return [*held, self.receiver.state] if self.receiver is not None else held

    def renew_key(self) -> None:
        """Take a new key once the old one is too old; looked at once an hour. Who hashes elsewhere
        (``on_key``) is told, or one session would bear two names."""
        moment = time.monotonic()
        if self._options.key_file is None or moment - self._key_checked < _KEY_CHECK_SECONDS:
            return
        self._key_checked = moment
        key = load_key(self._options.key_file)
        if key.secret == self.key.secret:
            return
        self.key = key
        self.identifier.take(key)
        for take in self.on_key:
            take(key)
        _LOG.info("the key of the session hash was renewed: every session now looks new once")

    def _add_spans(self, spans: Spans) -> None:
        if self.joiner is not None:
            self.joiner.add_spans(spans)
        else:
            self.table.add_all([event for event, _ in spans])


class _Base:
    """A collector over ``Sessions``: starts it when first asked."""

    name: str
    group: Group = "slow"
    families: tuple[Family, ...]

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def close(self) -> None:
        """Stop the feeds."""
        self._sessions.close()


class _SessionCollector(_Base):
    name = "sessions"
    families = FAMILIES

    def collect(self, now: float) -> Rows:  # noqa: ARG002  # the table has a clock that never jumps
        """All rows about sessions, models and tenants."""
        sessions = self._sessions
        sessions.start()
        sessions.renew_key()
        if sessions.joiner is not None:
            sessions.joiner.settle()
        return session_rows(sessions.table, sessions.max_length)


class _FeedCollector(_Base):
    name = "feeds"
    families = FEED_FAMILIES

    def collect(self, now: float) -> Rows:  # noqa: ARG002
        """How each feed fares."""
        self._sessions.start()
        rows: dict[str, list[Row]] = {}
        for state, labels in _labelled(self._sessions.states()):
            _feed_rows(rows, state, labels)
        if self._sessions.joiner is not None:
            rows["llmdiag_feed_joined_total"] = [Row((), float(self._sessions.joiner.joined))]
        created = self._sessions.key.created
        rows["llmdiag_session_key_created_timestamp_seconds"] = [Row((), created)]
        return rows


class EngineLogCollector:
    """Counters and start-up facts of followed engine logs."""

    name = "engine_log"
    group: Group = "slow"
    families = LOG_FAMILIES

    def __init__(
        self, logs: Sequence[EngineLog], start: Callable[[], None], close: Callable[[], None]
    ) -> None:
        self._logs = logs
        self._start = start
        self.close = close

    def collect(self, now: float) -> Rows:  # noqa: ARG002
        """Rows of all logs that can be read."""
        self._start()
        rows: dict[str, list[Row]] = {}
        for log in self._logs:
            for name, some in log_rows(log).items():
                rows.setdefault(name, []).extend(some)
        if not rows:
            raise NoData
        return rows


def _labelled(states: list[FeedState]) -> list[tuple[FeedState, tuple[str, str]]]:
    """Each feed with its labels; feeds of one name are told apart by a number."""
    seen: dict[tuple[str, str], int] = {}
    labelled = []
    for state in states:
        number = seen[state.name, state.kind] = seen.get((state.name, state.kind), 0) + 1
        labelled.append((state, (state.name if number == 1 else f"{state.name}#{number}", state.kind)))
    return labelled


def _feed_rows(rows: dict[str, list[Row]], state: FeedState, labels: tuple[str, str]) -> None:
    def put(name: str, value: float, *more: str) -> None:
        rows.setdefault(name, []).append(Row((*labels, *more), float(value)))

    put("llmdiag_feed_up", not state.error)
    put("llmdiag_feed_events_total", state.events)
    for reason, count in _lost(state).items():
        put("llmdiag_feed_lost_total", count, reason)
    if state.kind != "otlp":
        put("llmdiag_feed_rotations_total", state.rotations + state.truncations)
    if state.last_event is not None:
        put("llmdiag_feed_last_event_timestamp_seconds", state.last_event)


def _lost(state: FeedState) -> Mapping[str, int]:
    return {"skipped": state.skipped, "too_long": state.too_long, "unusable": state.unusable}
