"""What an engine's own endpoints say, as facts. Pages come from a server in trouble: anything may be
missing, of another type or cut."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from diag_exporter.engine.facts import Facts, from_settings, merged, on_off

__all__ = ["metrics_facts", "models_facts", "server_info_facts", "version_facts"]

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SERIES = re.compile(
    r"(vllm[:_]cache_config_info|vllm[:_]cache_config|process_start_time_seconds"
    r"|vllm[:_]num_requests_running|sglang[:_]num_running_reqs"
    r"|sglang[:_](?:max_total_num_tokens|context_len|page_size|max_running_requests))"
    r"(?:\{(.*)\})? (\S+)"
)
_MODELS_MAX = 50
_NAME_CHARS_MAX = 128


def models_facts(body: bytes) -> Facts:
    """``/v1/models``: served names, and the maximum length where the engine says it (vLLM does)."""
    rows = _dict(_json(body)).get("data")
    models: list[str] = []
    lengths: dict[str, int] = {}
    for row in (rows if isinstance(rows, list) else [])[:_MODELS_MAX]:
        row = _dict(row)
        name, length = row.get("id"), row.get("max_model_len")
        if not isinstance(name, str) or not name:
            continue
        models.append(name[:_NAME_CHARS_MAX])
        if isinstance(length, int) and not isinstance(length, bool) and length > 0:
            lengths[models[-1]] = length
    owners = {_dict(row).get("owned_by") for row in rows} if isinstance(rows, list) else set()
    producer = next((name for name in ("vllm", "sglang") if name in owners), "")
    return Facts(producer=producer, models=tuple(models), max_lengths=lengths)


def version_facts(body: bytes) -> Facts:
    """``/version``."""
    version = _dict(_json(body)).get("version")
    return Facts(version=version[:64]) if isinstance(version, str) else Facts()


def server_info_facts(body: bytes) -> Facts:
    """``/server_info``: SGLang's arguments lie flat in it; vLLM's (developer mode, as JSON) in parts."""
    whole = _dict(_json(body))
    version = whole.get("version")
    config = _dict(whole.get("vllm_config"))
    flat: dict[str, object] = {}
    if config:
        for part in ("model_config", "cache_config", "scheduler_config"):
            flat.update(_dict(config.get(part)))
        producer = "vllm"
    else:
        states = whole.get("internal_states")
        inner = _dict(states[0]) if isinstance(states, list) and states else {}
        flat = {**whole, **{name: value for name, value in inner.items() if value is not None}}
        producer = "sglang" if "disable_radix_cache" in flat or "mem_fraction_static" in flat else ""
    told = Facts(producer=producer, version=version[:64] if isinstance(version, str) else "")
    return merged((told, from_settings(flat)))


def metrics_facts(body: bytes) -> Facts:
    """``/metrics``: the cache's configuration, under which name the engine counts, and when the process
    started (absent when several API servers share the page)."""
    caches: dict[str, dict[str, str]] = {}
    numbers: dict[str, float] = {}
    models: list[str] = []
    for name, labels, value in _series(body):
        if name.endswith(("_running", "_running_reqs")):
            models.append(dict(_LABEL.findall(labels)).get("model_name", "")[:_NAME_CHARS_MAX])
        elif name.startswith("vllm"):
            held = dict(_LABEL.findall(labels))
            caches[held.get("engine", "")] = held
        elif not name.startswith("sglang") or not re.search(r'(?:tp|pp)_rank="[1-9]', labels):
            # Data-parallel ranks add up; a capacity is the only one of these that is asked for so.
            known = numbers.get(name)
            total = known is not None and name.endswith("max_total_num_tokens")
            numbers[name] = (known or 0.0) + value if total else value
    sglang = {name[7:]: value for name, value in numbers.items() if name.startswith("sglang")}
    start = numbers.get("process_start_time_seconds")
    producer = "vllm" if caches else "sglang" if sglang else ""
    return merged((
        Facts(
            producer=producer,
            models=tuple(dict.fromkeys(filter(None, models)))[:_MODELS_MAX],
            start_time=start if start and start > 0 else None,
        ),
        _cache_facts(list(caches.values())),
        from_settings(sglang),
    ))  # fmt: skip


def _cache_facts(caches: list[dict[str, str]]) -> Facts:
    if not caches:
        return Facts()
    capacities = [_capacity(held) for held in caches]
    known = [tokens for tokens in capacities if tokens is not None]
    first = from_settings({name: caches[0].get(name) for name in ("block_size", "cache_dtype")})
    return Facts(
        kv_capacity_tokens=sum(known) if len(known) == len(caches) else None,
        block_size_tokens=first.block_size_tokens,
        kv_cache_dtype=first.kv_cache_dtype,
        # "None" on old engines: left to the engine's version, which this page does not tell.
        prefix_caching=on_off(caches[0].get("enable_prefix_caching")),
    )


def _capacity(held: Mapping[str, str]) -> int | None:
    """In tokens. From vLLM 0.24 on it is told; before, blocks times their size, which is wrong for
    models that mix kinds of attention."""
    told = from_settings({"kv_capacity_tokens": held.get("kv_cache_size_tokens")}).kv_capacity_tokens
    if told is not None:
        return told
    size = from_settings({"block_size": held.get("block_size")}).block_size_tokens
    blocks = from_settings({"block_size": held.get("num_gpu_blocks")}).block_size_tokens
    return size * blocks if size and blocks else None


def _series(body: bytes) -> Iterator[tuple[str, str, float]]:
    for line in body.split(b"\n"):
        if not line.startswith((b"vllm", b"sglang", b"process_start")):
            continue
        match = _SERIES.match(line.decode("utf-8", "replace"))
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            yield match[1], match[2] or "", value


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
