"""Trouble that public threads show in the words of other parts than the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from diag.model import Window
from diag.records import read_log

Write = Callable[..., Path]


def test_transfers_ports_and_workers_are_read_as_public_threads_show_them(write_lines: Write) -> None:
    """Mooncake with glog's stamps (sglang#4880), NCCL (llm-d#191), vLLM's abort (vllm#21148)."""
    port = "prefill-2:311:405 [0] net_ib.cc:199 NCCL WARN NET/IB : mlx5_32:1 Got async error event: port"
    path = write_lines(
        "t.log",
        [
            "W1129 22:00:00.856264 77969 metadata.cpp:153] Failed to retrieve segment descriptor, name peer",
            f"[2026-11-29 22:00:01] {port} error",
            f"[2026-11-29 22:00:02] {port} active",
            "(Worker_TP3 pid=311) ERROR 11-29 22:00:03 [executor.py:596] WorkerProc hit an exception.",
            "INFO 11-29 22:00:04 [async_llm.py:339] Request chatcmpl-ca6de8da aborted.",
            "[2026-11-29 22:00:30] [TensorRT-LLM][ERROR] Couldn't find the requested block in the reuse tree",
        ],
    )
    read = read_log(path, window=Window(1795989500, 1795990000), component="v")
    assert [(event.kind, event.time - 1795989600) for event in read.events] == [
        ("kv_load_failure", 0), ("link_error", 1), ("engine_error", 3), ("abort", 4), ("kv_load_failure", 30),
    ]  # fmt: skip
