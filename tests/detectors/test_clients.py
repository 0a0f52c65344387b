"""Which clients are hit: one that waits far longer, beside a small trouble of everybody's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diag.detectors.clients import hit_clients
from diag.model import Case, Window
from diag.triage.run import look

START, HALF, END = 1_000_000.0, 1_000_500.0, 1_001_000.0


@pytest.mark.parametrize(("worst_seconds", "names"), [(60.0, ("t-a",)), (3.0, ("t-a", "t-b"))])
def test_who_waits_ten_times_less_has_another_trouble(worst_seconds: float, names: tuple[str, ...]) -> None:
    ts = np.arange(START, END, 2.0)
    tenant = np.where(np.arange(len(ts)) % 2 == 0, "t-a", "t-b")
    extra = np.where(tenant == "t-a", worst_seconds, 1.0)
    ttft = 0.3 + np.where(ts >= HALF, extra, 0.0)
    frame = pd.DataFrame({"ts": ts, "status": "ok", "tenant": tenant, "ttft_seconds": ttft})
    case = Case(
        Window(START, END), 5.0, {}, requests=frame,
        baseline=Window(START, HALF - 1), incident=Window(HALF, END),
    )  # fmt: skip
    hit = hit_clients(look(case, 5.0))
    assert hit is not None
    assert (hit.names, hit.known) == (names, 2)
