"""Alerts and verdicts on disk: one SQLite file, safe against a restart at any moment.

An *alert* is known by fingerprint and start, so that a repeat is no news. A *question* is a window of the
source: alerts that start within the same minute ask the same, and share one triage and its verdict.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diag.errors import DiagError
from diag.serve.webhook import Alert

__all__ = ["Incident", "Question", "Store"]

QUEUED, RUNNING, DONE, FAILED = "queued", "running", "done", "failed"
_TOGETHER_SECONDS = 60
_SEARCHED = 20_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS question (
  id INTEGER PRIMARY KEY, minute INTEGER UNIQUE NOT NULL, state TEXT NOT NULL, asked REAL NOT NULL,
  finished REAL, seconds REAL, runs INTEGER NOT NULL DEFAULT 0, verdict BLOB, error TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS alert (
  id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, starts_at REAL NOT NULL, ends_at REAL,
  received REAL NOT NULL,
  labels TEXT NOT NULL, annotations TEXT NOT NULL, question INTEGER NOT NULL REFERENCES question(id),
  UNIQUE (fingerprint, starts_at));
CREATE INDEX IF NOT EXISTS alert_question ON alert(question);
CREATE INDEX IF NOT EXISTS question_state ON question(state);
"""


@dataclass(frozen=True, slots=True)
class Question:
    """One triage: ``starts_at`` of the alerts that ask, unix seconds; ``finished``/``seconds`` of the last
    run; ``verdict``: ``diag.verdict/1`` as JSON."""

    id: int
    starts_at: float
    state: str
    asked: float
    finished: float | None
    seconds: float | None
    runs: int
    verdict: bytes | None
    error: str


@dataclass(frozen=True, slots=True)
class Incident:
    """One alert with what was found for it."""

    id: int
    alert: Alert
    received: float
    question: Question


class Store:
    """``path``: the file, ":memory:" for a test. Every call is a transaction; threads may share it."""

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.RLock()
        try:
            self._db = sqlite3.connect(str(path), check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise DiagError(
                f"cannot keep verdicts in {path}: {error}", hint="choose another --store"
            ) from error
        with self._writing() as db:
            # Whoever was at work when the process ended begins anew.
            db.execute("UPDATE question SET state=? WHERE state=?", (QUEUED, RUNNING))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def receive(self, alerts: Iterable[Alert], now: float) -> int:
        """Keep ``alerts``; how many were new. A known one may end, and never begins again."""
        new = 0
        with self._writing() as db:
            for one in alerts:
                known = db.execute(
                    "SELECT id FROM alert WHERE fingerprint=? AND starts_at=?",
                    (one.fingerprint, one.starts_at),
                ).fetchone()
                if known is not None:
                    if one.ends_at is not None:
                        db.execute("UPDATE alert SET ends_at=? WHERE id=?", (one.ends_at, known[0]))
                    continue
                new += 1
                db.execute(
                    "INSERT INTO alert"
                    " (fingerprint, starts_at, ends_at, received, labels, annotations, question)"
                    " VALUES (?,?,?,?,?,?,?)",
                    (
                        one.fingerprint,
                        one.starts_at,
                        one.ends_at,
                        now,
                        json.dumps(dict(one.labels)),
                        json.dumps(dict(one.annotations)),
                        self._asked(db, one.starts_at, now),
                    ),
                )
        return new

    def _asked(self, db: sqlite3.Connection, starts_at: float, now: float) -> int:
        minute = int(starts_at // _TOGETHER_SECONDS)
        db.execute(
            "INSERT INTO question(minute, state, asked) VALUES (?,?,?) ON CONFLICT(minute) DO NOTHING",
            (minute, QUEUED, now),
        )
        found: int = db.execute("SELECT id FROM question WHERE minute=?", (minute,)).fetchone()[0]
        return found

    def take(self) -> Question | None:
        """The question that waits longest, now running; None when none waits."""
        with self._writing() as db:
            row = db.execute(
                f"SELECT {_QUESTION} FROM question q WHERE q.state=? ORDER BY q.asked, q.id LIMIT 1",
                (QUEUED,),
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE question SET state=? WHERE id=?", (RUNNING, row[0]))
            return _question(row)

    def finish(self, id: int, verdict: bytes, now: float, seconds: float) -> None:
        """Keep a verdict."""
        self._ended(id, DONE, verdict, "", now, seconds)

    def fail(self, id: int, error: str, now: float, seconds: float) -> None:
        """Keep why there is none; an earlier verdict stays."""
        self._ended(id, FAILED, None, error, now, seconds)

    def _ended(
        self, id: int, state: str, verdict: bytes | None, error: str, now: float, seconds: float
    ) -> None:
        with self._writing() as db:
            db.execute(
                "UPDATE question SET state=?, verdict=COALESCE(?, verdict), error=?, finished=?, seconds=?,"
                " runs=runs+1 WHERE id=?",
                (state, verdict, error, now, seconds, id),
            )

    def ask_again(self, before: float) -> int:
        """Queue anew what still fires and was last judged before ``before``; how many."""
        with self._writing() as db:
            return db.execute(
                "UPDATE question SET state=? WHERE state IN (?,?) AND finished < ? AND EXISTS"
                " (SELECT 1 FROM alert a WHERE a.question=question.id AND a.ends_at IS NULL)",
                (QUEUED, DONE, FAILED, before),
            ).rowcount

    def waiting(self) -> int:
        """Questions not answered yet."""
        with self._lock:
            row = self._db.execute("SELECT COUNT(*) FROM question WHERE state IN (?,?)", (QUEUED, RUNNING))
            count: int = row.fetchone()[0]
            return count

    def incidents(self, limit: int = 200) -> list[Incident]:
        """The newest first."""
        return self._incidents("ORDER BY a.starts_at DESC, a.id DESC LIMIT ?", (limit,))

    def incident(self, id: int) -> Incident | None:
        """One by its number."""
        return next(iter(self._incidents("WHERE a.id=?", (id,))), None)

    def of_question(self, id: int) -> list[Incident]:
        """All alerts that asked it."""
        return self._incidents("WHERE a.question=? ORDER BY a.id", (id,))

    def alerts(self, *, firing: bool = False) -> int:
        """How many are kept; with ``firing`` those that have not ended."""
        rest = " WHERE ends_at IS NULL" if firing else ""
        with self._lock:
            count: int = self._db.execute(f"SELECT COUNT(*) FROM alert{rest}").fetchone()[0]
            return count

    def newest(self, labels: Mapping[str, str]) -> int | None:
        """The newest incident that bears all of ``labels``; None where there is none."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, labels FROM alert ORDER BY starts_at DESC, id DESC LIMIT ?", (_SEARCHED,)
            ).fetchall()
        return next((id for id, told in rows if labels.items() <= json.loads(told).items()), None)

    def _incidents(self, rest: str, values: tuple[Any, ...]) -> list[Incident]:
        with self._lock:
            rows = self._db.execute(
                "SELECT a.id, a.fingerprint, a.starts_at, a.ends_at, a.received, a.labels, a.annotations,"
                f" a.question FROM alert a {rest}",
                values,
            ).fetchall()
            # One verdict is a hundred kilobytes: those who share it share it in memory as well.
            asked = {row[-1] for row in rows}
            questions = {
                id: _question(
                    self._db.execute(f"SELECT {_QUESTION} FROM question q WHERE q.id=?", (id,)).fetchone()
                )
                for id in asked
            }
        return [_incident(row, questions[row[-1]]) for row in rows]

    def forget(self, before: float) -> None:
        """Drop what ended before ``before``, so that the file does not grow for ever."""
        with self._writing() as db:
            db.execute("DELETE FROM alert WHERE ends_at IS NOT NULL AND ends_at < ?", (before,))
            db.execute("DELETE FROM question WHERE id NOT IN (SELECT question FROM alert)")


_QUESTION = "q.id, q.minute, q.state, q.asked, q.finished, q.seconds, q.runs, q.verdict, q.error"


def _question(row: tuple[Any, ...]) -> Question:
    id, minute, state, asked, finished, seconds, runs, verdict, error = row
    return Question(
        id, minute * float(_TOGETHER_SECONDS), state, asked, finished, seconds, runs, verdict, error
    )


def _incident(row: tuple[Any, ...], question: Question) -> Incident:
    id, fingerprint, starts_at, ends_at, received, labels, annotations, _ = row
    told: Mapping[str, str] = json.loads(labels)
    alert = Alert(fingerprint, starts_at, ends_at, told, json.loads(annotations))
    return Incident(id, alert, received, question)
