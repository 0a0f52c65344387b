"""Small hand-made bundles and histograms, and the overlaid incidents made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate import Bundle, overlaid


@pytest.fixture(scope="session")
def made() -> Callable[[str], Bundle]:
    """An overlaid incident by name, made once for all tests."""
    return cache(overlaid)


@pytest.fixture
def histogram_series() -> Callable[..., list[RawSeries]]:
    """The raw series of one histogram family from its observations per scrape interval."""

    def build(family: str, bounds: list[float], observations: list[list[float]]) -> list[RawSeries]:
        times: Floats = np.arange(len(observations) + 1, dtype=np.float64) * 2.0 + 1000.0
        series = []
        for bound in [*bounds, float("inf")]:
            counts = [0.0, *np.cumsum([sum(v <= bound for v in batch) for batch in observations])]
            le = "+Inf" if bound == float("inf") else f"{bound}"
            labels = {"__name__": f"{family}_bucket", "le": le, "instance": "a:1"}
            series.append(RawSeries(labels, times, np.array(counts, dtype=float)))
        sums = [0.0, *np.cumsum([sum(batch) for batch in observations])]
        counts = [0.0, *np.cumsum([len(batch) for batch in observations])]
        for suffix, row in (("sum", sums), ("count", counts)):
            labels = {"__name__": f"{family}_{suffix}", "instance": "a:1"}
            series.append(RawSeries(labels, times, np.array(row, dtype=float)))
        return series

    return build
