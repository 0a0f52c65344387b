"""A recording beside its replay: TTFT by prompt length, KV use and preemptions, as one Markdown table each.

    python -m diag.simulate.comparison RECORDING … > docs/…

The replay gets the recorded arrivals and lengths, the recorded engine's flags, and a machine that was
fitted to that recording's calm requests; queues, KV use and preemptions are then the simulator's own.
"""

from __future__ import annotations

import gzip
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from diag.model import Floats
from diag.simulate.fitting import Fit, fit, observations, replay
from diag.simulate.observed import Run
from diag.simulate.parts import Bundle, load
from diag.simulate.plan import Settings
from diag.simulate.profiles import constant
from diag.simulate.serving import run as simulate

__all__ = ["Comparison", "Level", "Row", "compare", "markdown", "recorded_settings"]

_EDGES = (0, 500, 1_000, 2_000, 4_000, 6_000, 8_000, 12_000, 16_000, 32_768)
_LEVELS = ("mean KV use", "highest KV use", "mean running", "mean waiting", "preemptions")
_SLOWER = 1.2
_FEWEST = 8  # requests in a row, below which its median is left out
_LOGGED = re.compile(r"'(\w+)': ([^,}]+)")
_NOTED = re.compile(r"--(no-)?([a-z][a-z-]+[a-z])(?: (\d+))?")


@dataclass(frozen=True, slots=True)
class Row:
    """Requests with prompts of ``least`` … ``most`` tokens sent while ``phase``; medians in seconds."""

    phase: str
    least: int
    most: int
    requests: int
    real_seconds: float
    simulated_seconds: float

    @property
    def ratio(self) -> float:
        """Simulated over real."""
        return self.simulated_seconds / self.real_seconds


@dataclass(frozen=True, slots=True)
class Level:
    """One quantity of the whole recording. ``slower``: simulated with every step a fifth longer, which says
    how near the tipping point it is."""

    name: str
    real: float
    simulated: float
    slower: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One recording: its fit, its curve and its levels."""

    name: str
    fit: Fit
    rows: tuple[Row, ...]
    levels: tuple[Level, ...]


def recorded_settings(bundle: Bundle) -> Settings:
    """The engine's flags as its log, the recording's notes and ``cache_config_info`` state them.

    vLLM 0.32 caps each prompt's chunk at the long-prefill threshold but lets any number of such chunks
    share a step, whatever the flag for partial prefills says."""
    flags = _flags(bundle)
    usual = Settings()
    return Settings(
        max_num_seqs=int(flags.get("max_num_seqs", usual.max_num_seqs)),
        max_num_batched_tokens=int(flags.get("max_num_batched_tokens", usual.max_num_batched_tokens)),
        long_prefill_threshold_tokens=int(flags.get("long_prefill_token_threshold", 0)),
        max_long_partial_prefills=1_000,
        kv_blocks=int(flags.get("num_gpu_blocks", usual.kv_blocks)),
        block_size_tokens=int(flags.get("block_size", usual.block_size_tokens)),
        max_model_len_tokens=int(flags.get("max_model_len", usual.max_model_len_tokens)),
        prefix_caching=flags.get("enable_prefix_caching", "True") == "True",
        reserve_full_isl=flags.get("scheduler_reserve_full_isl", "True") == "True",
    )


def _flags(bundle: Bundle) -> dict[str, str]:
    """By vLLM's names, with underscores; a later source wins over an earlier one."""
    found: dict[str, str] = {}
    notes = str(bundle.meta.get("notes") or "")
    for sign, name, value in _NOTED.findall(notes):
        found[name.replace("-", "_")] = value if value else str(not sign)
    for path, data in bundle.files.items():
        if path.startswith("logs/"):
            text = gzip.decompress(data) if path.endswith(".gz") else data
            first = next((line for line in text.splitlines() if b"non-default args" in line), b"")
            found.update(_LOGGED.findall(first.decode("utf-8", "replace")))
    for series in bundle.series("vllm:cache_config_info"):
        found |= {key: value for key, value in series.labels.items() if value not in ("", "None")}
    return found


def compare(bundle: Bundle) -> Comparison:
    """Fit, replay, and set side by side."""
    settings = recorded_settings(bundle)
    chunk = settings.long_prefill_threshold_tokens or settings.max_num_batched_tokens
    fitted = fit(observations(bundle), chunk)
    plan = replay(bundle, fitted, settings)
    run = simulate(plan)
    longer = replace(plan.replicas[0], step_factor=constant(_SLOWER))
    slower = simulate(replace(plan, replicas=(longer,)))
    levels = zip(_LEVELS, _real(bundle), _simulated(bundle, run), _simulated(bundle, slower), strict=True)
    return Comparison(bundle.name, fitted, tuple(_rows(bundle, run)), tuple(Level(*row) for row in levels))


def _rows(bundle: Bundle, run: Run) -> Iterable[Row]:
    """Both sides by the same requests: those that the recording saw a first token of."""
    onset = float(bundle.label["onset"]) - bundle.window.start
    simulated = {
        (call.session, call.turn): call.answered - call.sent
        for call in run.calls
        if math.isfinite(call.answered)
    }
    turns: Counter[str] = Counter()
    both = []
    for one in observations(bundle):
        key = (one.session, turns[one.session])
        turns[one.session] += 1
        if key in simulated:
            both.append((one.sent < onset, one.prompt_tokens, one.first_token - one.sent, simulated[key]))
    for before in (True, False):
        for least, most in pairwise(_EDGES):
            chosen = [row for row in both if row[0] == before and least <= row[1] < most]
            if len(chosen) >= _FEWEST:
                real, made = (float(np.median([row[at] for row in chosen])) for at in (2, 3))
                yield Row("before" if before else "after", least, most, len(chosen), real, made)


def _real(bundle: Bundle) -> tuple[float, ...]:
    onset = float(bundle.label["onset"])
    kv, running, waiting = (
        _gauge(bundle, f"vllm:{name}", onset)
        for name in ("kv_cache_usage_perc", "num_requests_running", "num_requests_waiting")
    )
    counted = _gauge(bundle, "vllm:num_preemptions_total", 0.0)
    return float(kv.mean()), float(kv.max()), float(running.mean()), float(waiting.mean()), float(counted[-1])


def _simulated(bundle: Bundle, run: Run) -> tuple[float, ...]:
    engine = run.engines[0]
    late = run.times >= float(bundle.label["onset"]) - bundle.window.start
    kv, running, waiting = (engine.gauges[name][late] for name in ("kv_used_ratio", "running", "waiting"))
    counted = engine.counters["preemptions"]
    return float(kv.mean()), float(kv.max()), float(running.mean()), float(waiting.mean()), float(counted[-1])


def _gauge(bundle: Bundle, name: str, since: float) -> Floats:
    series = next(bundle.series(name))
    times = np.asarray(series.times, dtype=np.float64)
    return np.asarray(series.values, dtype=np.float64)[times >= since]


def markdown(comparisons: Sequence[Comparison]) -> str:
    """Two tables: the curve, and the levels."""
    lines = [
        "| recording | requests sent | prompt tokens | n | real TTFT p50 | simulated | simulated / real |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in comparisons:
        lines += [
            f"| {one.name} | {row.phase} | {row.least}–{row.most} | {row.requests} "
            f"| {row.real_seconds:.3f} s | {row.simulated_seconds:.3f} s | {row.ratio:.2f} |"
            for row in one.rows
        ]
    lines += [
        "",
        "| recording | after the onset | real | simulated | steps a fifth longer |",
        "|---|---|---|---|---|",
    ]
    for one in comparisons:
        lines += [f"| {one.name} | {_level(level)} |" for level in one.levels]
    lines += ["", "| recording | TTFT of calm requests | inter-token time | fitted on |", "|---|---|---|---|"]
    for one in comparisons:
        found = one.fit
        lines.append(
            f"| {one.name} | ± {found.ttft_error_ratio:.0%} | ± {found.inter_token_error_ratio:.0%} "
            f"| {found.ttft_requests} and {found.inter_token_requests} requests |"
        )
    return "\n".join(lines) + "\n"


def _level(level: Level) -> str:
    digits = 0 if level.name == "preemptions" else 2
    values = (level.real, level.simulated, level.slower)
    return " | ".join((level.name, *(f"{value:.{digits}f}" for value in values)))


if __name__ == "__main__":
    sys.stdout.write(markdown([compare(load(Path(path))) for path in sys.argv[1:]]))
