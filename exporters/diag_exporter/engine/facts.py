"""What is known of an engine, and where it was read; a more direct source outranks a weaker one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

__all__ = ["Facts", "from_log", "from_settings", "merged", "on_off"]


@dataclass(frozen=True, slots=True)
class Facts:
    """None or empty is not known. ``producer``: vllm or sglang. ``max_lengths``: tokens by served model.
    ``kv_capacity_tokens``: of all data-parallel engines together. ``start_time``: unix seconds."""

    producer: str = ""
    version: str = ""
    models: tuple[str, ...] = ()
    max_lengths: Mapping[str, int] = field(default_factory=dict)
    kv_capacity_tokens: int | None = None
    block_size_tokens: int | None = None
    kv_cache_dtype: str = ""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    prefix_caching: bool | None = None
    max_length: int | None = None
    start_time: float | None = None


def merged(sources: Iterable[Facts]) -> Facts:
    """The first source that knows a fact is believed."""
    held = Facts()
    empty = Facts()
    for source in sources:
        missing = {
            one.name: getattr(source, one.name)
            for one in fields(Facts)
            if getattr(held, one.name) == getattr(empty, one.name)
        }
        held = replace(held, **missing)
    if held.max_length is not None and not held.max_lengths:
        held = replace(held, max_lengths=dict.fromkeys(held.models[:1], held.max_length))
    return held


_NAMES: Mapping[str, tuple[str, ...]] = {
    "max_num_seqs": ("max_num_seqs", "max_running_requests"),
    "max_num_batched_tokens": ("max_num_batched_tokens", "chunked_prefill_size"),
    "max_length": ("max_model_len", "context_length", "context_len"),
    "kv_capacity_tokens": ("kv_capacity_tokens", "max_total_num_tokens"),
    "block_size_tokens": ("block_size", "page_size"),
}
"""Settings by fact, in vLLM's and in SGLang's spelling."""


def from_settings(held: Mapping[str, object]) -> Facts:
    """Facts out of settings by name, however they were got (see ``_NAMES``)."""
    numbers: dict[str, Any] = {fact: _number(held, names) for fact, names in _NAMES.items()}
    caching = on_off(held.get("enable_prefix_caching"))
    if caching is None and (radix := on_off(held.get("disable_radix_cache"))) is not None:
        caching = not radix
    dtype = held.get("kv_cache_dtype", held.get("cache_dtype"))
    return Facts(
        kv_cache_dtype=dtype if isinstance(dtype, str) and dtype != "auto" else "",
        prefix_caching=caching,
        **numbers,
    )


def from_log(held: Mapping[str, str]) -> Facts:
    """Facts out of what a start printed: what came of it before what was asked for."""
    asked = {name.removeprefix("flag_"): value for name, value in held.items() if name.startswith("flag_")}
    producer = held.get("producer", "vllm" if "version" in held else "")
    told = Facts(producer=producer, version=held.get("version", ""))
    return merged((told, from_settings(held), from_settings(asked)))


def on_off(value: object) -> bool | None:
    """True and False, as themselves or as Python prints them; anything else is not known."""
    if isinstance(value, bool):
        return value
    return {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())


def _number(held: Mapping[str, object], names: Iterable[str]) -> int | None:
    for name in names:
        value = held.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            number = int(float(value))
        except (ValueError, OverflowError):
            continue
        if number > 0:  # -1 and 0 stand for "none" or "as large as it gets"
            return number
    return None
