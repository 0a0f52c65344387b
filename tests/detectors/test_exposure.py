"""Who waited behind whom, and only on the same engine; and what turns find that stay where they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from diag.detectors.exposure import exposure_of
from diag.detectors.placement import placement_of
from diag.model import Case, Window
from diag.records.cohorts import from_frame
from diag.triage.run import look

END, HALF = 2000.0, 1000.0
EVERY = np.arange(0.0, END, 2.0)
NUMBER = np.arange(len(EVERY))
LATE = EVERY >= HALF


def frame(**columns: Any) -> pd.DataFrame:
    """A request every two seconds, on two engines in turn."""
    usual = {
        "ts": EVERY, "status": "ok", "tenant": "t-a", "prompt_tokens": 1000.0, "cached_tokens": 900.0,
        "output_tokens": 100.0, "ttft_seconds": 0.2, "e2e_seconds": 5.0,
        "instance": np.where(NUMBER % 2 == 0, "e0", "e1"),
    }  # fmt: skip
    return pd.DataFrame({**usual, **columns})


def test_a_giant_holds_up_those_on_its_own_engine_only() -> None:
    giant = LATE & (NUMBER % 20 == 0)  # on e0, and there for ten of forty seconds
    behind = LATE & (NUMBER % 2 == 0) & (NUMBER % 20 > 0) & (NUMBER % 20 <= 5)
    requests = from_frame(frame(ttft_seconds=np.where(giant, 10.0, np.where(behind, 6.0, 0.2))), END)
    seen = exposure_of(requests, giant, ~LATE, LATE)
    assert seen is not None
    assert (seen.behind, seen.behind_seconds, seen.free_seconds) == (int(behind.sum()), 6.0, 0.2)


def turns(stayed: float, moved: float) -> Any:
    """Sessions of ten turns that change the engine at every third one, in the second half."""
    session = np.array([f"s{n // 10}" for n in NUMBER])
    switched = LATE & (NUMBER % 3 == 0)
    there = np.where(np.cumsum(switched) % 2 == 0, "e0", "e1")
    found = np.where(LATE, np.where(switched, moved, stayed), 0.95)
    records = frame(session=session, instance=there, prompt_tokens=2000.0, cached_tokens=1000 * found)
    return look(
        Case(
            Window(0.0, END), 5.0, {}, requests=records,
            baseline=Window(0.0, HALF - 1), incident=Window(HALF, END),
        ),
        5.0,
    )  # fmt: skip


def test_turns_that_stay_find_their_history_where_only_the_placement_is_bad() -> None:
    seen = placement_of(turns(stayed=0.95, moved=0.0))
    assert seen is not None
    assert seen.stayed > seen.moved + 0.3
    assert not seen.stayed_miss


def test_turns_that_stay_miss_as_well_where_the_head_changes() -> None:
    seen = placement_of(turns(stayed=0.1, moved=0.0))
    assert seen is not None
    assert seen.stayed_miss
