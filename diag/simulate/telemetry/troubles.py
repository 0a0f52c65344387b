"""What engines print when something is wrong: ends, failed starts, workers that hang, transfers that fail."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.model import Floats
from diag.simulate.observed import Engine, Run
from diag.simulate.plan import Replica, Restart
from diag.simulate.telemetry.lives import Life

__all__ = ["troubles_of"]

_Line = tuple[float, str]
_HANG_SECONDS = 60.0  # after which, and as often, the core says that a worker does not answer
_NO_ANSWER = "No available shared memory broadcast block found in 60 seconds."
_QUIET_SECONDS = 30.0  # at most one line about transfers in that time


def troubles_of(run: Run, replica: Replica, engine: Engine, lives: tuple[Life, ...]) -> Iterator[_Line]:
    """Lines beyond those of ``Run.log``; a restart that is told of there is not told again."""
    said = [time for time, name, _ in run.log if name == replica.name]
    for index, life in enumerate(lives):
        if not np.isfinite(life.until):
            continue
        up = lives[index + 1].since if index + 1 < len(lives) else np.inf
        if not any(life.until - 2.0 <= time <= up + 2.0 for time in said):
            yield from _ending(replica, life, up, run.plan.seconds)
    if replica.settings.tensor_parallel > 1:
        for start, end in replica.hangs:
            for time in np.arange(start + _HANG_SECONDS, end, _HANG_SECONDS):
                yield float(time), f"INFO [shm_broadcast.py:466] {_NO_ANSWER}"
    if run.plan.fabric is not None:
        yield from _transfers(run.times, engine)


def _ending(replica: Replica, life: Life, up: float, seconds: float) -> Iterator[_Line]:
    """Why a process ended, and the starts that failed after it."""
    down = life.until
    near = [restart for restart in replica.restarts if abs(restart.time - down) < 1.0]
    why = near[0] if near else Restart(down, reason="crash")
    if why.reason == "xid":
        yield down, "ERROR [core.py:1120] CUDA error: an illegal memory access was encountered"
    if why.reason in ("xid", "crash"):
        yield down + 0.3, "ERROR [core.py:1121] EngineCore encountered a fatal error."
    else:
        yield down, "INFO [launcher.py:320] Shutting down"
    attempts = max(why.attempts, int(why.reason == "bind"))
    until = min(up, seconds)
    port = replica.name.rpartition(":")[2]
    for attempt in range(attempts):
        time = down + (until - down) * (attempt + 0.5) / (attempts + 0.5)
        yield time, f"ERROR [entry.py:140] OSError: [Errno 98] Address already in use: ('0.0.0.0', {port})"


def _transfers(times: Floats, engine: Engine) -> Iterator[_Line]:
    held = engine.counters
    failed = "WARNING [scheduler.py:2210] Recovered from KV load failure: {} request(s) rescheduled."
    expired = (
        "WARNING [worker.py:1893] Releasing expired KV blocks for {} request(s) which were retrieved by 0"
        " remote worker(s) before lease expired."
    )
    for name, words in (("transfer_failures", failed), ("transfer_expired", expired)):
        silent_until = -np.inf
        fresh = np.diff(held[name], prepend=held[name][:1])
        for index in np.flatnonzero(fresh > 0):
            if times[index] >= silent_until:
                yield float(times[index]), words.format(int(fresh[index]))
                silent_until = times[index] + _QUIET_SECONDS
