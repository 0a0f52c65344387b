"""Log lines in the shapes that engines really print."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from diag.simulate.reconstructed.flow import Flow
from diag.simulate.reconstructed.stage import Stage

__all__ = ["decode_line", "status_lines", "vllm_line"]


def _moment(stage: Stage, at: float) -> datetime:
    return datetime.fromtimestamp(stage.start + at, UTC)


def vllm_line(
    stage: Stage, at: float, text: str, *, level: str = "INFO", source: str = "loggers.py:127"
) -> str:
    """A line of vLLM's logger, without year and zone as it writes them."""
    return f"{level} {_moment(stage, at):%m-%d %H:%M:%S} [{source}] {text}"


def status_lines(
    stage: Stage,
    made: Flow,
    log: str,
    *,
    posted: Mapping[float, str] | None = None,
    until: float | None = None,
    every: float = 10.0,
) -> None:
    """vLLM V1's periodic lines out of the flow, left out for ``every`` seconds around posted ones, which are put
    in word for word (``posted``: seconds since the window's start → text after the source)."""
    posted = posted or {}
    last = stage.seconds if until is None else until
    times = np.arange(every, last, every)
    running, waiting, used = made.running(times), made.waiting(times), made.kv_used(times)
    for row, at in enumerate(times.tolist()):
        if any(abs(at - other) < every for other in posted):
            continue
        begun = (made.first > at - every) & (made.first <= at)
        prompt = float(made.prompt[begun].sum()) / every
        rate = float(made.done_at(np.array([at]))[0] - made.done_at(np.array([at - every]))[0]) / every
        hit = float(made.cached[begun].sum()) / max(float(made.prompt[begun].sum()), 1.0)
        text = (
            f"Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: "
            f"{rate * running[row]:.1f} tokens/s, Running: {running[row]:.0f} reqs, Waiting: {waiting[row]:.0f} reqs, "
            f"GPU KV cache usage: {used[row] * 100:.1f}%, Prefix cache hit rate: {hit * 100:.1f}%"
        )
        stage.say(log, at, vllm_line(stage, at, text))
    for at, text in posted.items():
        stage.say(log, at, text)


def decode_line(
    stage: Stage, at: float, *, running: int, tokens: int, usage: float, rate: float, queue: int = 0
) -> str:
    """SGLang's decode line (0.4)."""
    return (
        f"[{_moment(stage, at):%Y-%m-%d %H:%M:%S} TP0] Decode batch. #running-req: {running}, #token: {tokens}, "
        f"token usage: {usage:.2f}, gen throughput (token/s): {rate:.2f}, #queue-req: {queue}"
    )
