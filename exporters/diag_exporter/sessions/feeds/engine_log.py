"""An engine's log, followed: troubles that no metric counts, and what it said when it started.

What was in the file when following began is read for the start-up facts only: counters tell what
happened since. Shapes of lines: vLLM 0.2 to 0.33 and SGLang 0.4 to 0.5, with or without the
``(APIServer pid=…)`` prefix.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from diag_exporter.families import Family, Row, Rows
from diag_exporter.sessions.feeds.engine_startup import begins_start, startup_facts
from diag_exporter.sessions.feeds.follow import Follower
from diag_exporter.sessions.feeds.state import FeedState

__all__ = ["LOG_FAMILIES", "EngineLog", "log_rows"]

_SRC = "the followed engine log"
_NO_LOG = "No engine log is followed, or it cannot be read."
LOG_FAMILIES: tuple[Family, ...] = (
    Family("llmdiag_engine_bind_failures_total", "counter",
           "Starts that failed because the address was taken.", ("engine",), _NO_LOG, _SRC),
    Family("llmdiag_engine_preemption_warnings_total", "counter",
           "Log lines that tell of preempted (SGLang: retracted) requests.", ("engine",), _NO_LOG, _SRC),
    Family("llmdiag_engine_logged_preemptions_total", "counter",
           "Preempted requests by those lines' own numbers.", ("engine",), _NO_LOG, _SRC),
    Family("llmdiag_engine_aborted_request_lines_total", "counter",
           "Log lines that tell of aborted requests.", ("engine",), _NO_LOG, _SRC),
    Family("llmdiag_engine_kv_load_failures_total", "counter",
           "Requests that failed or were recomputed because their KV blocks could not be loaded.",
           ("engine",), _NO_LOG, _SRC),
    Family("llmdiag_engine_fatal_errors_total", "counter",
           "Log lines of errors that an engine does not survive, or of a worker that hangs.",
           ("engine",), _NO_LOG, _SRC),
    Family("llmdiag_engine_starts_total", "counter", "Starts seen in the log.", ("engine",), _NO_LOG, _SRC),
    Family("llmdiag_engine_startup_info", "info",
           "What the engine printed at its last start; setting flag_… is what the operator set.",
           ("engine", "setting", "value"), f"{_NO_LOG} Or its start is no longer in it.", _SRC),
)  # fmt: skip

_BIND = re.compile(r"address already in use|\[Errno 98\]|\bEADDRINUSE\b", re.IGNORECASE)
_V0_PREEMPTED = re.compile(
    r"is preempted by PreemptionMode\.\w+ mode.*?total_num_cumulative_preemption=(\d+)", re.DOTALL
)
_V1_PREEMPTED = re.compile(r"Running: \d+ reqs.*\bPreemptions: (\d+)")
_RETRACTED = re.compile(r"#retracted_reqs: (\d+)")
_ABORTED = re.compile(r"\bAborted request\(?s?\)? |\bAbort(?:ed)? request ")
_KV_FAILED = re.compile(r"Failing (\d+) request\(s\) due to KV load failure|Recovered from KV load failure")
# EngineDeadError is left out: API servers raise it when they are stopped, too.
_FATAL = re.compile(
    r"EngineCore encountered a fatal error|Engine core proc \S+ died"
    r"|No available shared memory broadcast block|CUDA out of memory|Scheduler hit an exception"
)
_KEYWORDS = re.compile(
    r"ddress already|Errno 98|EADDRINUSE|reempt|retracted_reqs|Abort|KV load failure"
    r"|EngineCore enc|Engine core proc|No available shared|CUDA out of|Scheduler hit"
)
# A failed bind is told by the server, by asyncio and in a traceback, within moments.
_ONE_FAILURE_SECONDS = 3.0
_COUNTERS = tuple(family.name for family in LOG_FAMILIES if family.kind == "counter")


class EngineLog:
    """Follows the log of the engine called ``engine`` (an address or a name); fed by ``step``."""

    def __init__(self, path: Path, engine: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.engine = engine
        self.state = FeedState(engine, "engine_log")
        self.counts = dict.fromkeys(_COUNTERS, 0)
        self._clock = clock
        self._lock = threading.Lock()
        self._facts: dict[str, str] = {}
        self._facts_before: dict[str, str] = {}
        self._cumulative: int | None = None
        self._bind_told = -_ONE_FAILURE_SECONDS + clock()
        self._follower = Follower(path, from_start=True, line_bytes_max=1 << 20)
        self._history_bytes = self._follower.size()

    def facts(self) -> dict[str, str]:
        """What the last start said that found its address free (see ``engine_startup``); empty when
        none was seen."""
        with self._lock:
            return dict(self._facts)

    def step(self) -> bool:
        """Take in what is there, at most one chunk; whether there may be more right now."""
        source = self._follower
        # A chunk that begins in what was there before counts as history whole.
        old = source.position() < self._history_bytes
        lines = source.read()
        with self._lock:
            for line in lines:
                self._feed(line.decode("utf-8", "replace"), old=old)
        state = self.state
        state.events += len(lines)
        state.error, state.too_long = source.state.error, source.state.too_long
        state.rotations, state.truncations = source.state.rotations, source.state.truncations
        if state.error or state.rotations or state.truncations:
            self._history_bytes = 0
        return bool(lines)

    def close(self) -> None:
        """Let go of the file."""
        self._follower.close()

    def _feed(self, text: str, *, old: bool) -> None:
        if begins_start(text):
            self._facts_before, self._facts = self._facts, {}
            self._cumulative = None
            if not old:
                self.counts["llmdiag_engine_starts_total"] += 1
        self._facts.update(startup_facts(text))
        if _KEYWORDS.search(text):
            # Who has the address is the engine that wrote here before, if any; not the one that failed. Once
            # its KV cache stands a start has not failed: then it is some other port.
            if "kv_capacity_tokens" not in self._facts and _BIND.search(text):
                self._facts = dict(self._facts_before)
            preempted = self._preempted(text)  # of history, too: it goes on from the last number told
            if not old:
                self._trouble(text, preempted)

    def _trouble(self, text: str, preempted: int | None) -> None:
        counts = self.counts
        if _BIND.search(text):
            now = self._clock()
            if now - self._bind_told >= _ONE_FAILURE_SECONDS:
                counts["llmdiag_engine_bind_failures_total"] += 1
                self._bind_told = now
        if preempted is not None:
            counts["llmdiag_engine_preemption_warnings_total"] += 1
            counts["llmdiag_engine_logged_preemptions_total"] += preempted
        if _ABORTED.search(text):
            counts["llmdiag_engine_aborted_request_lines_total"] += 1
        if match := _KV_FAILED.search(text):
            counts["llmdiag_engine_kv_load_failures_total"] += int(match[1] or 1)
        if _FATAL.search(text):
            counts["llmdiag_engine_fatal_errors_total"] += 1

    def _preempted(self, text: str) -> int | None:
        if match := _V1_PREEMPTED.search(text) or _RETRACTED.search(text):
            return int(match[1]) or None
        match = _V0_PREEMPTED.search(text)
        if match is None:
            return None
        # Printed at 1, 51, 101, … only: the number told is since the start, not since the last line.
        total, before = int(match[1]), self._cumulative
        self._cumulative = total
        return total - before if before is not None and total >= before else total


def log_rows(log: EngineLog) -> Rows:
    """The rows of one log; none while it cannot be read and nothing ever was."""
    if log.state.error and not log.state.events:
        return {}
    rows = {name: [Row((log.engine,), float(count))] for name, count in log.counts.items()}
    facts = sorted(log.facts().items())
    if facts:
        rows["llmdiag_engine_startup_info"] = [Row((log.engine, name, value), 1.0) for name, value in facts]
    return rows
