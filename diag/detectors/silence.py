"""Does an engine hold requests and make nothing? The one definition, for the symptom and for its causes.

A rate of 0 says that nothing came in a whole look-back, so that a silence began where the first such
look-back did.
"""

from __future__ import annotations

import numpy as np

from diag.model import Case, Floats, Series

__all__ = ["MADE", "same_instance", "silence_of"]

MADE = (
    "generation_tokens_per_second", "prompt_tokens_per_second", "computed_prompt_tokens_per_second",
    "steps_per_second",
)  # fmt: skip
"""What an engine that works makes. Half of it at 0 is no silence while the other half is not known."""

_HELD = 0.5  # requests, mean of a look-back


def same_instance(case: Case, name: str, instance: str) -> Series | None:
    """The series of an engine signal that has this instance."""
    return next((s for s in case.of(name) if s.labels.get("instance", "") == instance), None)


def silence_of(case: Case, running: Series) -> Floats | None:
    """On the grid of ``running``, shape (n,): 1 where its engine holds requests and makes nothing, 0 where
    not, NaN where that is not known; None when nothing tells what it makes."""
    where = running.labels.get("instance", "")
    made = [s.values for name in MADE if (s := same_instance(case, name, where)) is not None]
    if not made:
        return None
    rates = np.vstack(made)
    waiting = same_instance(case, "waiting_requests", where)
    parts = [running.values] if waiting is None else [running.values, waiting.values]
    # What is held is at least what is known of it: one that runs is enough, however many wait.
    held = np.nansum(parts, axis=0) >= _HELD
    works = np.nanmax(np.where(np.isfinite(rates), rates, -np.inf), axis=0) > 0
    known = np.isfinite(parts).any(axis=0) & (works | np.isfinite(rates).all(axis=0))
    silent: Floats = np.where(known, held & ~works, np.nan)
    return silent
