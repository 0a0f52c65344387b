"""Ways to part requests: by length, by turn, by the age of their session, by tenant.

Everything here takes a record frame (see ``diag.records.record``) and does no IO. A request whose
session or length is not known belongs to no cohort: NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diag.model import Window

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LENGTH_BOUNDS_TOKENS",
    "length_bins",
    "repeated_prefix_estimate",
    "session_age_seconds",
    "share_by",
    "turn_index",
]

LENGTH_BOUNDS_TOKENS: tuple[int, ...] = (512, 2048, 8192, 32768, 131072)
"""Upper ends of the length bins, each four times the last: prefill time grows at least as fast."""


def length_bins(frame: pd.DataFrame) -> pd.Series:
    """The prompt-length bin of each request: an ordered categorical ("≤512" … ">131072"), NaN unknown."""
    import pandas as pd

    edges = [-1.0, *map(float, LENGTH_BOUNDS_TOKENS), np.inf]
    labels = [f"≤{bound}" for bound in LENGTH_BOUNDS_TOKENS] + [f">{LENGTH_BOUNDS_TOKENS[-1]}"]
    bins: pd.Series = pd.cut(frame["prompt_tokens"], edges, labels=labels)
    return bins.rename("length_bin")


def session_age_seconds(frame: pd.DataFrame) -> pd.Series:
    """Seconds since the first record of the request's session; NaN without a session.

    Sessions older than the log look as old as the log: a lower bound.
    """
    first = frame.groupby("session")["ts"].transform("min")
    age: pd.Series = frame["ts"] - first
    return age.rename("session_age_seconds")


def turn_index(frame: pd.DataFrame) -> pd.Series:
    """How many records of its session came before each request (0, 1, …; float), NaN without a session."""
    turns: pd.Series = (
        frame.sort_values("ts", kind="stable").groupby("session").cumcount().reindex(frame.index)
    )
    return turns.astype(np.float64).where(frame["session"].notna()).rename("turn_index")


def share_by(frame: pd.DataFrame, column: str, window: Window) -> pd.DataFrame:
    """Who used what in ``window``: one row a value of ``column``, the largest user first.

    Columns ``requests``, ``request_ratio``, ``tokens`` (prompt and output, as far as known) and
    ``token_ratio`` (NaN when no tokens are known). Ratios are of everything in the window, requests
    without a value included, so that they need not sum to 1.
    """
    inside = frame[(frame["ts"] >= window.start) & (frame["ts"] <= window.end)]
    tokens = inside[["prompt_tokens", "output_tokens"]].sum(axis=1, min_count=1)
    groups = inside.assign(tokens=tokens).groupby(column, sort=True)["tokens"]
    shares = groups.agg(requests="size", tokens="sum")
    total = float(tokens.sum(min_count=1)) if len(tokens) else np.nan
    shares["request_ratio"] = shares["requests"] / max(len(inside), 1)
    shares["token_ratio"] = shares["tokens"] / (total if total > 0 else np.nan)
    shares = shares.sort_values(["tokens", "requests"], ascending=False, kind="stable")
    return shares[["requests", "request_ratio", "tokens", "token_ratio"]]


def repeated_prefix_estimate(frame: pd.DataFrame) -> pd.Series:
    """The share of each prompt that its session's previous turn already held: an attainable hit ratio.

    min(previous prompt + previous output, prompt) / prompt; NaN for a session's first record and
    where tokens are not known. An upper bound for sessions that trim or rewrite their history, and
    blind to prefixes shared between sessions.
    """
    ordered = frame.sort_values("ts", kind="stable")
    held = (ordered["prompt_tokens"] + ordered["output_tokens"].fillna(0.0)).groupby(ordered["session"])
    # A turn that failed has no counts; the last one that has them is what the cache can hold.
    previous = held.ffill().groupby(ordered["session"]).shift(1).reindex(frame.index)
    prompt = frame["prompt_tokens"].where(frame["prompt_tokens"] > 0)
    estimate: pd.Series = np.minimum(previous, prompt) / prompt
    return estimate.rename("repeated_prefix_ratio")
