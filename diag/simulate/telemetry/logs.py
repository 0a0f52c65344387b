"""Logs in the words of vLLM 0.31 and later, of SGLang, and of a kernel.

An engine's log begins with its start, days before the window; the status line stands there once a
minute instead of every ten seconds, to keep files small.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import numpy as np

from diag.simulate.observed import Engine, Run
from diag.simulate.plan import Replica
from diag.simulate.telemetry.cards import pci_of
from diag.simulate.telemetry.engines import pod_of
from diag.simulate.telemetry.lives import Life, lives_of, place_in
from diag.simulate.telemetry.startup import sglang_start, vllm_start
from diag.simulate.telemetry.troubles import troubles_of

__all__ = ["engine_logs", "kernel_logs"]

_STATUS_SECONDS = 60.0
_HIT_SPAN_SECONDS = 600.0
_READY = "startup complete"  # each start tells of it by itself
_TAKEN = "[Errno 98]"
_BINDS_AFTER_SECONDS = 4.0
_Line = tuple[float, str]


def engine_logs(run: Run) -> dict[str, bytes]:
    """Each engine's log by its path in the bundle."""
    pods = Counter(pod_of(replica) for replica in run.plan.replicas)
    files: dict[str, bytes] = {}
    for replica, engine in zip(run.plan.replicas, run.engines, strict=True):
        name = pod_of(replica) if pods[pod_of(replica)] == 1 else replica.name
        write = _sglang_line if run.plan.shown.engine == "sglang" else _vllm_line
        lines = sorted(_engine_lines(run, replica, engine), key=lambda line: line[0])
        text = (write(run.plan.start + time, words) for time, words in lines)
        files[f"logs/{name}.log.gz"] = _packed(text)
    return files


def _engine_lines(run: Run, replica: Replica, engine: Engine) -> Iterator[_Line]:
    lives = lives_of(run, replica)
    start = sglang_start if run.plan.shown.engine == "sglang" else vllm_start
    for life in lives:
        yield from start(replica, life)
    said = [(time, words) for time, name, words in run.log if name == replica.name and _READY not in words]
    for time, words in (*said, *troubles_of(run, replica, engine, lives)):
        yield time, words
        if _TAKEN in words:  # each start that fails has begun like any other
            began = time - _BINDS_AFTER_SECONDS
            settings = next((life.settings for life in lives if time < life.since), lives[-1].settings)
            begun = start(replica, Life(began, time, time, settings))
            yield from (line for line in begun if line[0] == began)
    status = _sglang_status if run.plan.shown.engine == "sglang" else _vllm_status
    yield from status(run, engine, lives)


def _sampled(run: Run, lives: tuple[Life, ...]) -> Iterator[tuple[int, int]]:
    """Pairs of grid rows a minute apart in one life."""
    step = max(round(_STATUS_SECONDS / run.plan.step_seconds), 1)
    place = place_in(lives, run.times)
    for last in range(step, run.times.size, step):
        if place[last] >= 0 and place[last - step] == place[last]:
            yield last - step, last


def _vllm_status(run: Run, engine: Engine, lives: tuple[Life, ...]) -> Iterator[_Line]:
    """The line falls silent while nothing runs."""
    held, gauges = engine.counters, engine.gauges
    history = max(round(_HIT_SPAN_SECONDS / run.plan.step_seconds), 1)
    prompt = held["prompt_tokens"] - held["cached_tokens"] - held["external_tokens"]
    for first, last in _sampled(run, lives):
        span = float(run.times[last] - run.times[first])
        made = (held["generation_tokens"][last] - held["generation_tokens"][first]) / span
        read = max(float(prompt[last] - prompt[first]) / span, 0.0)
        running, waiting = gauges["running"][last], gauges["waiting"][last]
        if not (made or read or running or waiting):
            continue
        parts = [
            f"Avg prompt throughput: {read:.1f} tokens/s, Avg generation throughput: {made:.1f} tokens/s"
        ]
        parts.append(f"Running: {running:.0f} reqs, Waiting: {waiting:.0f} reqs")
        if gauges["waiting_deferred"][last] > 0:
            parts.append(f"Deferred: {gauges['waiting_deferred'][last]:.0f} reqs")
        evicted = held["preemptions"][last] - held["preemptions"][first]
        if evicted > 0:
            parts.append(f"Preemptions: {evicted:.0f}")
        parts.append(f"GPU KV cache usage: {100.0 * gauges['kv_used_ratio'][last]:.1f}%")
        asked = held["queries_tokens"][last] - held["queries_tokens"][max(last - history, 0)]
        if asked > 0:
            found = held["hits_tokens"][last] - held["hits_tokens"][max(last - history, 0)]
            parts.append(f"Prefix cache hit rate: {100.0 * min(found / asked, 1.0):.1f}%")
        yield float(run.times[last]), f"INFO [loggers.py:335] Engine 000: {', '.join(parts)}"


def _sglang_status(run: Run, engine: Engine, lives: tuple[Life, ...]) -> Iterator[_Line]:
    held, gauges = engine.counters, engine.gauges
    place = place_in(lives, run.times)
    for first, last in _sampled(run, lives):
        if not gauges["running"][last]:
            continue
        span = float(run.times[last] - run.times[first])
        made = (held["generation_tokens"][last] - held["generation_tokens"][first]) / span
        used = float(gauges["kv_used_ratio"][last])
        settings = lives[place[last]].settings
        tokens = used * settings.kv_blocks * settings.block_size_tokens
        yield (
            float(run.times[last]),
            (
                f"Decode batch, #running-req: {gauges['running'][last]:.0f}, #token: {tokens:.0f}, "
                f"token usage: {used:.2f}, cuda graph: True, gen throughput (token/s): {made:.2f}, "
                f"#queue-req: {gauges['waiting_capacity'][last]:.0f}"
            ),
        )


def _vllm_line(time: float, words: str) -> str:
    """``words``: level, place in the source, text; who says it is told by the text."""
    level, rest = words.split(" ", 1) if words.split(" ", 1)[0] in _LEVELS else (_level(words), words)
    core = any(
        word in rest for word in ("EngineCore", "CUDA", "KV cache size", "LLM engine", "KV load", "KV blocks")
    )
    who = "EngineCore pid=2071" if core else "APIServer pid=1"
    return f"({who}) {level} {datetime.fromtimestamp(time, UTC):%m-%d %H:%M:%S} {rest}"


_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})


def _level(words: str) -> str:
    lower = words.lower()
    return "ERROR" if any(word in lower for word in ("error", "fatal", "fail", "in use")) else "INFO"


def _sglang_line(time: float, words: str) -> str:
    level = words.split(" ", 1)[0]
    rest = words.split(" ", 2)[-1] if level in _LEVELS else words
    return f"[{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} TP0] {rest}"


def kernel_logs(run: Run) -> dict[str, bytes]:
    """Each host's kernel log by its path: Xids and kills, and what a kernel says on any day."""
    files: dict[str, bytes] = {}
    for host in run.plan.hosts:
        lines: list[_Line] = [
            (60.0, "audit: backlog limit exceeded"),
            (run.plan.seconds / 2, "perf: interrupt took too long"),
        ]
        for (name, index), acting in run.plan.cards:
            if name == host.name:
                lines += [
                    (time, f"NVRM: Xid (PCI:{pci_of(index)[4:-2]}): {code}, pid=4242, name=VLLM::EngineCor")
                    for time, code in acting.xids
                ]
        lines += _kills(run, host.name, host.leaking)
        text = (_syslog(run.plan.start + time, host.name, words) for time, words in sorted(lines))
        files[f"logs/kernel-{host.name}.log.gz"] = _packed(text)
    return files


def _kills(run: Run, host: str, leaking: str) -> Iterator[_Line]:
    who = "chat-backend" if leaking == "backend" else "VLLM::EngineCor"
    for node in run.nodes:
        if node.name == host:
            for index in np.flatnonzero(np.diff(node.rows["oom_kills"]) > 0):
                yield (
                    float(run.times[index + 1]),
                    f"Out of memory: Killed process 7071 ({who}) total-vm:98304000kB",
                )


def _syslog(time: float, host: str, words: str) -> str:
    since_boot = 1.8e6 + time % 1e6
    return f"{datetime.fromtimestamp(time, UTC):%b %d %H:%M:%S} {host} kernel: [{since_boot:.6f}] {words}"


def _packed(lines: Iterable[str]) -> bytes:
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), compresslevel=6, mtime=0)
