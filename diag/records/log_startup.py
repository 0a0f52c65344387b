"""What an engine says when it starts: the settings that no metric carries.

One log can hold several starts; each fact holds from its own line until the next start.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from diag.model import Fact

__all__ = ["Startups"]

_ARGS = re.compile(r"non-default args: (\{.*\})")
_VERSION = re.compile(
    r"(?:vLLM API server version |\sversion )(\d+\.\d+\S*)|LLM engine \((v?\d+\.\d+[^)]*)\) with config"
)
_SERVING = re.compile(r"Application startup complete|Running: \d+ reqs|#running-req: |The server is fired up")
_ARG_FACTS = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_model_len": "max_model_len_tokens",
    "enable_chunked_prefill": "chunked_prefill",
    "enable_prefix_caching": "prefix_caching",
    "long_prefill_token_threshold": "long_prefill_threshold_tokens",
    "num_gpu_blocks_override": "kv_blocks",
    "block_size": "block_size_tokens",
    "max_loras": "max_loras",
    "scheduler_reserve_full_isl": "full_prompt_reservation",
    "model": "model",
}
_ARG_PAIR = re.compile(r"'(\w+)': (True|False|\d+|'[^']*'|\['[^']*')")
# Later, resolved values outrank what the operator asked for: they are simply seen later.
_LINES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("max_model_len_tokens", re.compile(r"Using max model len (\d+)")),
    ("max_model_len_tokens", re.compile(r"LLM engine \(.*\bmax_seq_len=(\d+)")),
    ("prefix_caching", re.compile(r"LLM engine \(.*\benable_prefix_caching=(True|False)")),
    ("chunked_prefill", re.compile(r"LLM engine \(.*\benable_chunked_prefill=(True|False)")),
    ("chunked_prefill", re.compile(r"LLM engine \(.*\bchunked_prefill_enabled=(True|False)")),
    ("model", re.compile(r"LLM engine \(.*\bserved_model_name=\[?'?([^,'\]]+)")),
    ("max_num_batched_tokens", re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")),
    ("kv_capacity_tokens", re.compile(r"KV cache size: ([\d,]+) tokens")),
    ("max_concurrency", re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")),
    ("kv_blocks", re.compile(r"with num_gpu_blocks_override=(\d+)")),
    ("kv_blocks", re.compile(r"# \w+ blocks: (\d+)")),
    ("kv_memory_gib", re.compile(r"Available KV cache memory: ([\d.]+) GiB")),
    ("kv_capacity_tokens", re.compile(r"\bmax_total_num_tokens=(\d+)")),
    ("max_num_seqs", re.compile(r"\bmax_total_num_tokens=.*\bmax_running_requests=(\d+)")),
    ("max_model_len_tokens", re.compile(r"\bmax_total_num_tokens=.*\bcontext_len=(\d+)")),
    ("max_num_batched_tokens", re.compile(r"\bmax_total_num_tokens=.*\bchunked_prefill_size=(\d+)")),
    ("cuda_graph_tokens_max", re.compile(r"LLM engine \(.*['\"]max_(?:cudagraph_)?capture_size['\"]: (\d+)")),
    ("cuda_graph_tokens_max", re.compile(r"Truncating max_cudagraph_capture_size to (\d+)")),
    ("cuda_graph_tokens_max", re.compile(r"server_args=.*\bcuda_graph_max_bs=(\d+)")),
    ("max_loras", re.compile(r"server_args=.*\bmax_loras_per_batch=(\d+)")),
)  # fmt: skip
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
# What is said the other way round, or names a method where we ask whether there is one.
_UPSIDE_DOWN = {"True": "off", "False": "on"}
_SWITCHES: tuple[tuple[str, re.Pattern[str], Mapping[str, str]], ...] = (
    ("cuda_graphs", re.compile(r"LLM engine \(.*\benforce_eager=(True|False)"), _UPSIDE_DOWN),
    ("cuda_graphs", re.compile(r"LLM engine \(.*cudagraph_mode\W+\w*\.?(NONE)\b"), {"NONE": "off"}),
    ("cuda_graphs", re.compile(r"server_args=.*\bdisable_cuda_graph=(True|False)"), _UPSIDE_DOWN),
    ("speculative_decoding", re.compile(r"LLM engine \(.*\bspeculative_config=(None|\S)"), {"None": "off"}),
    ("speculative_decoding", re.compile(r"server_args=.*\bspeculative_algorithm=(None|\S)"), {"None": "off"}),
)  # fmt: skip
_RADIX = re.compile(r"server_args=.*\bdisable_radix_cache=(True|False)")
_KEYWORDS = (
    "non-default", "version ", "LLM engine (", "max model len", "Chunked prefill is", "KV cache size",
    "concurrency for", "num_gpu_blocks_override", " blocks: ", "KV cache memory",
    "max_total_num_tokens=", "server_args=", "cudagraph_capture_size",
)  # fmt: skip
_SAME_START_SECONDS = 5.0


@dataclass(slots=True)
class _Start:
    began: float | None
    marks: dict[str, float | None] = field(default_factory=dict)
    held: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    serving: bool = False


class Startups:
    """Collects the facts of one component's starts, line by line in order."""

    def __init__(self) -> None:
        self._starts: list[_Start] = []

    @property
    def version(self) -> str | None:
        """The engine's version as of the last line fed."""
        return self._starts[-1].held.get("engine_version", (None, None))[0] if self._starts else None

    @property
    def begun(self) -> tuple[float, ...]:
        """When starts were seen to begin."""
        return tuple(start.began for start in self._starts if start.began is not None and start.marks)

    def feed(self, time: float | None, text: str) -> None:
        """Take in one message; anything that tells nothing about a start is passed over."""
        if self._starts and not self._starts[-1].serving and _SERVING.search(text):
            self._starts[-1].serving = True
        if not any(word in text for word in _KEYWORDS):
            return
        args, version = _ARGS.search(text), _VERSION.search(text)
        if args or version:
            self._mark("args" if args else "engine" if version and version[2] else "version", time)
        found = dict(self._values(text))
        if args:
            found = dict(_arguments(args[1]))
        if version:
            found["engine_version"] = (version[1] or version[2]).removeprefix("v").rstrip(",.")
        if found:
            self._current(time).held.update({name: (value, time) for name, value in found.items()})

    def _current(self, time: float | None) -> _Start:
        if not self._starts:
            self._starts.append(_Start(time))
        return self._starts[-1]

    def _mark(self, kind: str, time: float | None) -> None:
        current = self._starts[-1] if self._starts else None
        if current is None or current.serving or _again(current.marks.get(kind), time, kind):
            current = _Start(time)
            self._starts.append(current)
        current.marks.setdefault(kind, time)

    def _values(self, text: str) -> Iterator[tuple[str, str]]:
        for name, pattern in _LINES:
            if match := pattern.search(text):
                yield name, _plain(match[1])
        if match := _RADIX.search(text):
            yield "prefix_caching", "off" if match[1] == "True" else "on"
        for name, pattern, words in _SWITCHES:
            if match := pattern.search(text):
                yield name, words.get(match[1], "on")
        if "chunked_prefill_size=" in text:
            yield "chunked_prefill", "off" if "chunked_prefill_size=-1" in text else "on"
        if (match := _CONCURRENCY.search(text)) and "KV cache size" not in text and self._starts:
            yield from self._block_size(int(match[1].replace(",", "")) * float(match[2]))

    def _block_size(self, capacity_tokens: float) -> Iterator[tuple[str, str]]:
        """V0 prints blocks and a concurrency, never the block size; the quotient is it, rounded."""
        held = self._starts[-1].held
        if "kv_blocks" in held and "kv_capacity_tokens" not in held and int(held["kv_blocks"][0]) > 0:
            blocks = int(held["kv_blocks"][0])
            size = max(round(capacity_tokens / blocks), 1)
            yield "block_size_tokens", str(size)
            yield "kv_capacity_tokens", str(size * blocks)

    def facts(self, labels: Mapping[str, str], source: str) -> Iterator[Fact]:
        """All facts, start after start."""
        ends = [*(start.began for start in self._starts[1:]), None]
        for start, until in zip(self._starts, ends, strict=False):
            for name, (value, since) in start.held.items():
                yield Fact(name, value, labels, source, since, until)


def _again(before: float | None, time: float | None, kind: str) -> bool:
    """Whether a mark repeats in the way of a second start (each data-parallel engine prints its own)."""
    return (
        kind != "engine" and before is not None and time is not None and time - before > _SAME_START_SECONDS
    )


def _arguments(text: str) -> Iterator[tuple[str, str]]:
    try:
        held = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        held = {match[1]: match[2].strip("['") for match in _ARG_PAIR.finditer(text)}
    if not isinstance(held, dict):
        return
    for key, name in _ARG_FACTS.items():
        if held.get(key) is not None:
            yield name, _plain(str(held[key]))
    served = held.get("served_model_name")
    if served:
        yield "model", str(served[0] if isinstance(served, list) else served)
    yield from _decoding(held)


def _decoding(held: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Graphs and speculation. The line holds all that was set, so that what it lacks is at its default:
    graphs on, speculation off."""
    compilation = held.get("compilation_config")
    settings = {**(compilation if isinstance(compilation, dict) else {}), **held}
    eager = held.get("enforce_eager") in (True, "True") or "NONE" in str(settings.get("cudagraph_mode"))
    yield "cuda_graphs", "off" if eager else "on"
    sizes = settings.get("cudagraph_capture_sizes")
    largest = max(sizes) if isinstance(sizes, list) and sizes else settings.get("max_cudagraph_capture_size")
    if isinstance(largest, int):
        yield "cuda_graph_tokens_max", str(largest)
    speculation = held.get("speculative_config")
    yield "speculative_decoding", "on" if speculation else "off"
    count = speculation.get("num_speculative_tokens") if isinstance(speculation, dict) else None
    if isinstance(count, int):
        yield "speculative_tokens", str(count)


def _plain(text: str) -> str:
    if text in ("True", "False"):
        return "on" if text == "True" else "off"
    return text.replace(",", "").rstrip(".") if re.fullmatch(r"[\d,.]+", text) else text.strip()
