"""What an engine prints when it starts: the settings that no metric carries.

vLLM says what the operator set in ``non-default args: {…}`` and what came of it in later lines; SGLang
in ``server_args=…`` and ``max_total_num_tokens=…``. Only the settings named here are kept: a command
line also holds keys and paths, which are nobody's business.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

__all__ = ["FLAGS", "begins_start", "startup_facts"]

FLAGS = frozenset((
    "async_scheduling", "block_size", "context_length", "chunked_prefill_size", "cpu_offload_gb",
    "data_parallel_size", "disable_radix_cache", "dp_size", "dtype", "enable_chunked_prefill",
    "enable_expert_parallel", "enable_lora", "enable_prefix_caching", "enforce_eager",
    "gpu_memory_utilization", "kv_cache_dtype", "kv_offloading_size", "long_prefill_token_threshold",
    "max_model_len", "max_num_batched_tokens", "max_num_queued_reqs", "max_num_seqs",
    "max_running_requests", "max_total_tokens", "max_prefill_tokens", "mem_fraction_static",
    "num_gpu_blocks_override", "page_size", "pipeline_parallel_size", "quantization",
    "schedule_policy", "scheduling_policy", "swap_space", "tensor_parallel_size", "tp_size",
))  # fmt: skip
"""Settings that decide a diagnosis, as both engines spell them in Python."""

_ARGS = re.compile(r"non-default args: (\{.*\})")
_ARG_PAIR = re.compile(r"'(\w+)': (True|False|None|-?\d+(?:\.\d+)?|'[^']*')")
_SERVER_ARGS = re.compile(r"\bserver_args=ServerArgs\((.*)\)")
_SERVER_PAIR = re.compile(r"\b(\w+)=(True|False|None|-?\d+(?:\.\d+)?|'[^']*')")
# vLLM introduces itself in a line or in a logo, whose blocks may be coloured; the engine core follows.
_NUMBER = r"v?(\d+\.\d+[\w.+-]*)"
_COLOUR = r"(?:\x1b\[\d*m)*"
_GREETING = re.compile(rf"vLLM (?:API )?server version {_NUMBER}|█{_COLOUR} +version +{_COLOUR}{_NUMBER}")
_ENGINE = re.compile(rf"LLM engine \({_NUMBER}\) with")
_LINES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("max_model_len", re.compile(r"Using max model len (\d+)")),
    ("max_model_len", re.compile(r"LLM engine \(.*\bmax_seq_len=(\d+)")),
    ("enable_prefix_caching", re.compile(r"LLM engine \(.*\benable_prefix_caching=(True|False)")),
    ("enable_chunked_prefill", re.compile(r"LLM engine \(.*\benable_chunked_prefill=(True|False)")),
    ("max_num_batched_tokens", re.compile(r"prefill is enabled with max_num_batched_tokens=(\d+)")),
    ("kv_capacity_tokens", re.compile(r"KV cache size: ([\d,]+) tokens")),
    ("max_concurrency", re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")),
    ("kv_memory_gib", re.compile(r"Available KV cache memory: ([\d.]+) GiB")),
    ("kv_blocks", re.compile(r"# \w+ blocks: (\d+), # CPU blocks")),
    ("kv_capacity_tokens", re.compile(r"\bmax_total_num_tokens=(\d+)")),
    ("max_num_seqs", re.compile(r"\bmax_total_num_tokens=.*\bmax_running_requests=(\d+)")),
    ("max_model_len", re.compile(r"\bmax_total_num_tokens=.*\bcontext_len=(\d+)")),
    ("max_num_batched_tokens", re.compile(r"\bmax_total_num_tokens=.*\bchunked_prefill_size=(\d+)")),
)  # fmt: skip
_KEYWORDS = (
    "non-default", "server version", "█", "LLM engine (", "max model len", "prefill is enabled",
    "KV cache size", "concurrency for", " blocks: ", "KV cache memory", "max_total_num_tokens=",
    "server_args=",
)  # fmt: skip
_VALUE_CHARS_MAX = 64


def begins_start(text: str) -> bool:
    """Whether the line is the first that an engine prints when it starts."""
    if "server_args=ServerArgs(" in text:
        return True
    return "version" in text and _GREETING.search(text) is not None


def startup_facts(text: str) -> Iterator[tuple[str, str]]:
    """Settings told by one log line, ``flag_…`` for what the operator set; later ones outrank."""
    if not any(word in text for word in _KEYWORDS):
        return
    if match := _GREETING.search(text) or _ENGINE.search(text):
        yield "version", next(filter(None, match.groups())).rstrip(".,")
    if match := _ARGS.search(text):
        yield from _flags(_arguments(match[1]))
    if match := _SERVER_ARGS.search(text):
        yield "producer", "sglang"
        yield from _flags({found[1]: _literal(found[2]) for found in _SERVER_PAIR.finditer(match[1])})
    for name, pattern in _LINES:
        if match := pattern.search(text):
            yield name, match[1].replace(",", "")


def _arguments(text: str) -> dict[str, object]:
    try:
        held = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        # Objects' reprs are no literals; the simple pairs around them still are.
        held = {match[1]: _literal(match[2]) for match in _ARG_PAIR.finditer(text)}
    return held if isinstance(held, dict) else {}


def _literal(text: str) -> str:
    return text.strip("'")


def _flags(held: dict[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in held.items():
        if name in FLAGS and isinstance(value, str | int | float) and str(value) != "None":
            yield f"flag_{name}", str(value)[:_VALUE_CHARS_MAX]
