"""From a question to the window that is meant, and from a case to its verdict: the same for every command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from diag import __version__

if TYPE_CHECKING:
    from diag.model import Case, Verdict, Window
    from diag.sources.protocol import Question, Source

__all__ = ["judged", "windowed"]


def judged(case: Case, now: float) -> Verdict:
    """What triage makes of ``case``, with the queries that show it again."""
    from diag.sources.queries import queries_of
    from diag.triage import triage

    verdict = triage(case, now=now, version=__version__)
    return replace(verdict, queries=queries_of(case, verdict))


def windowed(asked: Question, sources: Sequence[Source], live_seconds: float) -> Question:
    """The question with the window that is meant when none was given, wide enough for the baseline."""
    from diag.model import Window

    window = _meant(asked, sources, live_seconds)
    if window is None or asked.baseline is None:
        return replace(asked, window=window)
    if asked.baseline.start >= window.start and asked.baseline.end <= window.end:
        return replace(asked, window=window)
    # A healthy time from elsewhere: the window asked for is then what went wrong.
    both = Window(min(window.start, asked.baseline.start), max(window.end, asked.baseline.end))
    return replace(asked, window=both, incident=asked.incident or window)


def _meant(asked: Question, sources: Sequence[Source], live_seconds: float) -> Window | None:
    """The window asked for; else a live store's last hour, or None for the sources' own extent.

    Pages are polled after the clock was read, so that a window "until now" must reach to their end."""
    from diag.model import Window

    polled = [source.extent() for source in sources if source.ref.kind == "scrape"]
    if len(polled) == len(sources):
        return None
    window = asked.window
    if window is None and all(source.ref.kind in ("prometheus", "scrape") for source in sources):
        window = Window(asked.now - live_seconds, asked.now)
    if window is None:
        return None
    ends = [extent.end for extent in polled if extent is not None and window.end >= asked.now]
    return Window(window.start, max([window.end, *ends]))
