"""Looking again and again at the same sources, for ``diag watch``."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from diag.api import gather, open_sources
from diag.api.judging import judged, windowed

if TYPE_CHECKING:
    from diag.model import Case, Verdict
    from diag.sources.access import Access
    from diag.sources.protocol import Question, Source

__all__ = ["Look", "Watching"]

_FIRST_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One look: when (unix seconds), what was there, what it means."""

    time: float
    case: Case
    verdict: Verdict


class Watching:
    """Sources that stay open. Bare pages are polled on and on and kept; a store is asked for the last
    ``window_seconds``; a bundle is taken whole, which replays nothing but shows what a look would say."""

    def __init__(
        self, refs: list[str], question: Question, *, window_seconds: float, access: Access | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._refs, self._question, self._access, self._clock = refs, question, access, clock
        self.window_seconds = window_seconds
        self._stack = ExitStack()
        self._sources: list[Source] = []

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the sources."""
        self._stack.close()

    def look(self, poll_seconds: float) -> Look:
        """Ask anew; pages are polled for ``poll_seconds`` first. ``DiagError`` when a source does not
        answer: the next look tries again."""
        from diag.sources.scrape import ScrapeSource

        if not self._sources:
            self._open()
        else:
            for source in self._sources:
                if isinstance(source, ScrapeSource):
                    source.collect(max(poll_seconds, 2.0))
        now = self._clock()
        case = gather(self._sources, self._asked(now))
        return Look(now, case, judged(case, now))

    def save(self, path: Path) -> Path:
        """Write what is seen now as a bundle."""
        from diag.sources.recording import record

        record(self._sources, self._asked(self._clock()), path)
        return path

    def _open(self) -> None:
        opened = open_sources(self._refs, access=self._access, scrape_for_seconds=_FIRST_SECONDS)
        for source in opened:
            close = getattr(source, "close", None)
            if close is not None:
                self._stack.callback(close)
        self._sources = opened

    def _asked(self, now: float) -> Question:
        question = replace(self._question, now=now)
        return windowed(question, self._sources, self.window_seconds)
