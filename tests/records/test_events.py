from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from diag.records import BadLines, read_events

Write = Callable[..., Path]


def test_recorded_events(incidents: Path) -> None:
    (event,) = read_events([incidents / "healthy_a" / "events.jsonl"])
    assert (event.time, event.kind, event.target, event.marked) == (
        1795990755.004,
        "deploy",
        "web-frontend",
        True,
    )
    assert "1.8.2" in event.text


def test_order_foreign_kinds_and_bad_lines(write_lines: Write) -> None:
    path = write_lines(
        "e.jsonl",
        [
            {"time": "2026-11-29T22:09:02Z", "kind": "restart", "target": "vllm-0", "text": "x"},
            {"time": 5, "kind": "rollback", "text": "to 1.2"},
            {"kind": "deploy"},
            "junk",
        ],
    )
    bad = BadLines()
    events = read_events([path], bad=bad)
    assert [(event.time, event.kind, event.text) for event in events] == [
        (5.0, "other", "rollback: to 1.2"),
        (1795990142.0, "restart", "x"),
    ]
    assert [line.line for line in bad.kept] == [3, 4]
