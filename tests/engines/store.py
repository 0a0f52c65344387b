"""A real Prometheus over chosen samples, and what it answers on a grid."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import requests

from diag.signals.frame import Grid, RawSeries
from tests.engines.made_up import open_metrics
from tests.rules.servers import binary, prometheus_on

__all__ = ["Answer", "Refused", "Store", "holding"]

Answer = dict[tuple[tuple[str, str], ...], np.ndarray]


class Refused(AssertionError):
    """The server gave an error instead of an answer."""


@dataclass(frozen=True)
class Store:
    """A running server that answers PromQL, from any thread."""

    url: str
    _own: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def ask(self, query: str, grid: Grid) -> Answer:
        """Range query; values on the grid's times, NaN where the server gives none. Raises ``Refused``."""
        if not hasattr(self._own, "session"):
            self._own.session = requests.Session()
        reply = self._own.session.post(
            f"{self.url}/api/v1/query_range",
            data={"query": query, "start": grid.start, "end": grid.end, "step": grid.step},
            timeout=20,
        )
        body = reply.json()
        if body["status"] != "success":
            raise Refused(f"{body} for {query}")
        return {self._key(row["metric"]): self._values(row["values"], grid) for row in body["data"]["result"]}

    @staticmethod
    def _key(metric: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name, value) for name, value in metric.items() if name != "__name__"))

    @staticmethod
    def _values(pairs: Sequence[tuple[float, str]], grid: Grid) -> np.ndarray:
        values = np.full(len(grid.times), np.nan)
        for moment, text in pairs:
            values[round((moment - grid.start) / grid.step)] = float(text)
        return values


@contextmanager
def holding(samples: Sequence[RawSeries], folder: Path) -> Iterator[Store]:
    """A Prometheus that holds ``samples``; its files go into ``folder``."""
    text, data = folder / "samples.om", folder / "data"
    text.write_text(open_metrics(samples))
    subprocess.run(
        [binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, data],
        check=True,
        capture_output=True,
    )
    with prometheus_on(data) as url:
        yield Store(url)
