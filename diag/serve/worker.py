"""One thread that answers questions, oldest first, and asks again while an alert fires."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from diag.errors import DiagError
from diag.model import Verdict, Window
from diag.renderers import RenderOptions, render
from diag.serve.store import Incident, Question, Store

__all__ = ["Counted", "Judge", "Worker"]

Judge = Callable[[Window], Verdict]
Tell = Callable[[Verdict, list[Incident]], None]
_IDLE_SECONDS = 0.2
_KEEP_SECONDS = 90 * 86400.0
_LEAST_SECONDS = 60.0
_AFTER = 2.0  # look-backs


@dataclass(slots=True)
class Counted:
    """Since the process began: triages that ended well and not, the seconds they took, messages that
    failed."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    messages_failed: int = 0


class Worker:
    """``judge`` triages a window. ``look_back_seconds`` before the alert's start are asked for; while it
    fires it is judged anew every ``again_seconds``. ``tell``: called once a question with its first
    verdict."""

    def __init__(
        self, store: Store, judge: Judge, *, look_back_seconds: float, again_seconds: float,
        tell: Tell | None = None, clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._store, self._judge, self._tell, self._clock = store, judge, tell, clock
        self._look_back, self._again = look_back_seconds, again_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="triage", daemon=True)
        self.counted = Counted()

    def start(self) -> None:
        """Begin; questions left over from an earlier process come first."""
        self._thread.start()

    def stop(self) -> None:
        """Finish nothing more; what runs is asked again at the next start."""
        self._stop.set()

    def _run(self) -> None:
        checked = 0.0
        while not self._stop.is_set():
            question = self._store.take()
            if question is not None:
                self.answer(question)
                continue
            now = self._clock()
            if now - checked >= min(self._again, 5.0):
                checked = now
                self._store.ask_again(now - self._again)
                self._store.forget(now - _KEEP_SECONDS)
            self._stop.wait(_IDLE_SECONDS)

    def answer(self, question: Question) -> None:
        """Judge ``question`` and keep what came of it; never raises."""
        began, now = time.monotonic(), self._clock()
        # An alert that fires for days is told by how it began: a longer window would only be coarser.
        end = min(
            max(now, question.starts_at + _LEAST_SECONDS), question.starts_at + _AFTER * self._look_back
        )
        window = Window(question.starts_at - self._look_back, end)
        try:
            verdict = self._judge(window)
        except DiagError as error:
            self._failed(question, str(error), began)
            return
        except Exception as error:  # one odd case must not end the service
            self._failed(question, f"{type(error).__name__}: {error}", began)
            return
        seconds = time.monotonic() - began
        self._store.finish(
            question.id, render(verdict, "json", RenderOptions()).encode(), self._clock(), seconds
        )
        self.counted.done += 1
        self.counted.seconds += seconds
        if question.verdict is None and self._tell is not None:
            self._message(verdict, question)

    def _failed(self, question: Question, why: str, began: float) -> None:
        seconds = time.monotonic() - began
        self._store.fail(question.id, why, self._clock(), seconds)
        self.counted.failed += 1
        self.counted.seconds += seconds

    def _message(self, verdict: Verdict, question: Question) -> None:
        assert self._tell is not None
        try:
            self._tell(verdict, self._store.of_question(question.id))
        except Exception:  # whoever cannot be told finds it on the page
            self.counted.messages_failed += 1
