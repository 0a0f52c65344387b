"""What an incident cost: counted where it is on record, never zero for want of a record."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diag.model import Case, Window
from diag.triage.impact import impact_of
from diag.triage.run import look

START, HALF, END = 1_000_000.0, 1_000_500.0, 1_001_000.0


def case(**columns: object) -> Case:
    """A request every two seconds; first tokens take four seconds more in the second half."""
    ts = np.arange(START, END, 2.0)
    frame = pd.DataFrame({"ts": ts, "ttft_seconds": 0.3 + np.where(ts >= HALF, 4.0, 0.0), **columns})
    return Case(
        Window(START, END), 5.0, {}, requests=frame,
        baseline=Window(START, HALF - 1), incident=Window(HALF, END),
    )  # fmt: skip


def test_ends_that_nobody_recorded_are_not_known() -> None:
    impact = impact_of(look(case(), 5.0))
    assert impact is not None
    assert (impact.failed, impact.left) == (None, None)
    assert (impact.sessions, impact.tenants) == (None, None)
    assert impact.requests is not None


def test_recorded_ends_are_counted_and_none_of_them_is_zero() -> None:
    count = len(np.arange(START, END, 2.0))
    status = np.where(np.arange(count) % 50 == 49, "error", "ok")
    impact = impact_of(look(case(status=status), 5.0))
    assert impact is not None
    assert (impact.failed, impact.left) == (5, 0)
    assert impact.lost_seconds == pytest.approx(4.0 * (impact.requests or 0), rel=0.01)
