"""A source over samples that are already here: for tests, simulated incidents and overlays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from diag.model import SourceRef, Window
from diag.signals.algebra import Matcher
from diag.signals.frame import Grid, RawSeries
from diag.sources.evaluation import RawStore
from diag.sources.protocol import Attachments, Fetched

__all__ = ["MemorySource"]


class MemorySource:
    """Given raw series (and attachments) behind the face of every source."""

    def __init__(
        self,
        raw: Iterable[RawSeries],
        *,
        window: Window | None = None,
        incident: Window | None = None,
        attachments: Attachments | None = None,
        name: str = "memory",
        kind: str = "memory",
    ) -> None:
        """``window`` defaults to the samples' own extent."""
        self._store = RawStore(raw)
        self._window = window or self._store.extent()
        self._incident = incident
        self._attachments = attachments or Attachments()
        self._ref = SourceRef(kind, name)

    @property
    def ref(self) -> SourceRef:
        """Kind and name."""
        return self._ref

    def extent(self) -> Window | None:
        """The given window, or that of the samples."""
        return self._window

    def marked(self) -> tuple[Window | None, Window | None]:
        """No baseline, and the incident given."""
        return None, self._incident

    def begins(self, window: Window, matchers: Sequence[Matcher] = ()) -> float | None:
        """See ``Source``."""
        return self._store.begins(window, matchers)

    def scrape_seconds(self, window: Window) -> float | None:
        """See ``Source``."""
        return self._store.scrape_seconds(window)

    def fetch(self, signals: Sequence[str], grid: Grid, matchers: Sequence[Matcher] = ()) -> Fetched:
        """See ``Source``."""
        return self._store.fetch(signals, grid, matchers)

    def raw(self, window: Window, matchers: Sequence[Matcher] = ()) -> Iterator[RawSeries]:
        """See ``Source``."""
        return self._store.within(window, matchers)

    def attachments(self) -> Attachments:
        """What was given."""
        return self._attachments
