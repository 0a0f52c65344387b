"""What evicting a running request costs: computing its context again, or copying it out and back.

Idealised: without the attention term (which makes long contexts worse than linear) and at the link's
full rate (many small blocks run below it).
"""

from __future__ import annotations

__all__ = ["break_even_bytes_per_second", "recompute_seconds", "swap_seconds"]


def recompute_seconds(tokens: int, prefill_token_seconds: float) -> float:
    """GPU time to prefill the victim's prompt and answer so far once more."""
    return tokens * prefill_token_seconds


def swap_seconds(tokens: int, kv_bytes_per_token: float, bytes_per_second: float, *, ways: int = 1) -> float:
    """Time on the link; ``ways``: 1 for one direction, 2 for out and back."""
    return ways * tokens * kv_bytes_per_token / bytes_per_second


def break_even_bytes_per_second(
    kv_bytes_per_token: float, prefill_token_seconds: float, *, ways: int = 1
) -> float:
    """The link rate below which computing again is the cheaper one; any number of tokens."""
    return ways * kv_bytes_per_token / prefill_token_seconds
