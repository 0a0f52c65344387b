"""What sessions cost: an event from JSON lines, and the memory of a hundred thousand active ones."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from bench.measuring import cost_of
from diag_exporter.sessions.feeds.json_log import JsonLog
from diag_exporter.sessions.identity import Identifier, new_key
from diag_exporter.sessions.series import session_rows
from diag_exporter.sessions.table import Limits, SessionTable

__all__ = ["main"]

_SESSIONS = 100_000
_EVENTS = 200_000
_LINES_AT_ONCE = 50_000


def _line(number: int, moment: float) -> str:
    return json.dumps(
        {
            "ts": moment + number * 1e-3,
            "session": f"session-{number % _SESSIONS}",
            "tenant": f"tenant-{number % 400}",
            "model": "a-model",
            "prompt_tokens": 800 + number % 30_000,
            "cached_tokens": 400,
            "output_tokens": 150,
            "queue_seconds": 0.02,
            "ttft_seconds": 0.4,
            "duration_seconds": 6.0,
            "status": "ok",
        }
    )


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def measure() -> None:
    """Follow a log of 200,000 requests of 100,000 sessions; print CPU a line, bytes, CPU of the rows."""
    table = SessionTable(Limits(sessions=_SESSIONS))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "requests.jsonl"
        path.write_text("")
        log = JsonLog(path, table, Identifier(new_key()), preset="plain", fields={}, from_start=True)
        log.step()
        before, spent, moment = _resident(), 0.0, time.time() - 300.0
        for begin in range(0, _EVENTS, _LINES_AT_ONCE):
            lines = [_line(number, moment) for number in range(begin, begin + _LINES_AT_ONCE)]
            with path.open("a") as out:
                out.write("\n".join(lines) + "\n")
            del lines
            began = time.process_time()
            while log.step():
                pass
            spent += time.process_time() - began
        held = _resident() - before
        log.close()
    began = time.process_time()
    session_rows(table, lambda _: 32_768)
    print(json.dumps([spent / _EVENTS * 1e6, held, time.process_time() - began, log.state.events]))


def main() -> None:
    """Measure in a process of its own, and print."""
    found = cost_of([sys.executable, "-m", "bench.sessions", "measure"], repeat=3)
    event, held, rows, events = json.loads(found.output)
    name = f"session events from JSON lines ({events:,})"
    print(f"{name:<58} {f'{event:.1f} µs each':>20}  <= 5 µs")
    print(f"{f'{_SESSIONS:,} active sessions':<58} {f'{held / 1e6:.0f} MB':>20}  <= 64 MB")
    print(f"{'their rows, once a slow pass':<58} {f'{rows * 1e3:.0f} ms':>20}")
    sys.stdout.flush()


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["measure"] else main()
