"""Small synthetic series and cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from diag.model import Case, Floats, Series, Window

START, STEP = 1_000_000.0, 5.0

MakeSeries = Callable[..., Series]
MakeCase = Callable[..., Case]


@pytest.fixture
def series() -> MakeSeries:
    """``series(signal, values, instance="e0", **labels)`` on a grid of five seconds."""

    def make(signal: str, values: Sequence[float], instance: str = "e0", **labels: str) -> Series:
        numbers = np.asarray(values, dtype=np.float64)
        times: Floats = START + STEP * np.arange(len(numbers), dtype=np.float64)
        return Series(signal, {"instance": instance, **labels}, times, numbers)

    return make


@pytest.fixture
def case() -> MakeCase:
    """``case(series, …, **fields)``: the window is that of the first series (or 100 points)."""

    def make(*parts: Series, **fields: Any) -> Case:
        named: dict[str, tuple[Series, ...]] = {}
        for part in parts:
            named[part.signal] = (*named.get(part.signal, ()), part)
        end = float(parts[0].times[-1]) if parts else START + 100 * STEP
        return Case(Window(START, end), STEP, named, **fields)

    return make
