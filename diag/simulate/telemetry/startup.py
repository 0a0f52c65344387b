"""What engines say when they start: settings that no metric carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from diag.simulate.plan import Policy, Replica, Settings
from diag.simulate.telemetry.lives import Life

__all__ = ["sglang_start", "vllm_start"]

_DEFAULT_CAPTURED = 512
_READY_SECONDS = 20.0  # from the process' start until the pool is sized


def vllm_start(replica: Replica, life: Life) -> Iterator[tuple[float, str]]:
    """Lines of one start, (seconds since the window's start, level and text)."""
    settings, model = life.settings, replica.machine.name
    begun = life.began
    sized = begun + min(_READY_SECONDS, 0.7 * max(life.since - begun, 0.0) + 0.1)
    yield begun, f"INFO [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version {settings.version}"
    yield begun, f"INFO [api_utils.py:286] non-default args: {_arguments(model, settings)!r}"
    yield begun + 0.1, f"INFO [model.py:2152] Using max model len {settings.max_model_len_tokens}"
    yield (
        begun + 0.2,
        (
            f"INFO [core.py:133] Initializing a V1 LLM engine (v{settings.version}) with config: "
            f"model='{model}', "
            f"speculative_config={'SpeculativeConfig(...)' if settings.speculative_tokens else None}, "
            f"max_seq_len={settings.max_model_len_tokens}, tensor_parallel_size={settings.tensor_parallel}, "
            f"enforce_eager={settings.max_captured_batch == 0}, served_model_name={model}, "
            f"enable_prefix_caching={settings.prefix_caching}, "
            f"enable_chunked_prefill={settings.chunked_prefill}, "
            f"compilation_config={{'max_cudagraph_capture_size': {settings.max_captured_batch}}}"
        ),
    )
    tokens, longest = settings.kv_blocks * settings.block_size_tokens, settings.max_model_len_tokens
    yield (
        sized,
        (
            f"INFO [kv_cache_utils.py:2327] GPU KV cache size: {tokens:,} tokens, Maximum concurrency for "
            f"{longest:,} tokens per request: {tokens / longest:.2f}x"
        ),
    )
    yield max(life.since, sized), "INFO [launcher.py:186] Application startup complete."


def _arguments(model: str, settings: Settings) -> dict[str, Any]:
    """As an operator set them: those that differ from vLLM's defaults, and the ones people always set."""
    given: dict[str, Any] = {
        "model_tag": model,
        "enable_prompt_tokens_details": True,
        "model": model,
        "max_model_len": settings.max_model_len_tokens,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "enable_chunked_prefill": settings.chunked_prefill,
        "enable_prefix_caching": settings.prefix_caching,
    }
    if settings.tensor_parallel > 1:
        given["tensor_parallel_size"] = settings.tensor_parallel
    if settings.long_prefill_threshold_tokens:
        given["long_prefill_token_threshold"] = settings.long_prefill_threshold_tokens
    if not settings.reserve_full_isl:
        given["scheduler_reserve_full_isl"] = False
    if settings.policy is not Policy.FCFS:
        given["scheduling_policy"] = str(settings.policy)
    if settings.max_captured_batch == 0:
        given["enforce_eager"] = True
    elif settings.max_captured_batch != _DEFAULT_CAPTURED:
        given["compilation_config"] = {"max_cudagraph_capture_size": settings.max_captured_batch}
    if settings.speculative_tokens:
        given["speculative_config"] = {
            "method": "eagle3",
            "num_speculative_tokens": settings.speculative_tokens,
        }
    if settings.max_loras:
        given.update(enable_lora=True, max_loras=settings.max_loras)
    return given


def sglang_start(replica: Replica, life: Life) -> Iterator[tuple[float, str]]:
    """The same of SGLang."""
    settings, begun = life.settings, life.began
    budget = settings.max_num_batched_tokens if settings.chunked_prefill else -1
    yield (
        begun,
        (
            f"server_args=ServerArgs(model_path='{replica.machine.name}', context_length="
            f"{settings.max_model_len_tokens}, chunked_prefill_size={budget}, "
            f"max_running_requests={settings.max_num_seqs}, "
            f"disable_radix_cache={not settings.prefix_caching}, "
            f"disable_cuda_graph={settings.max_captured_batch == 0}, "
            f"cuda_graph_max_bs={settings.max_captured_batch}, "
            f"speculative_algorithm={repr('EAGLE3') if settings.speculative_tokens else None}, "
            f"tp_size={settings.tensor_parallel})"
        ),
    )
    yield (
        begun + 0.7 * max(life.since - begun, 0.0),
        (
            f"max_total_num_tokens={settings.kv_blocks * settings.block_size_tokens}, "
            f"chunked_prefill_size={budget}, max_prefill_tokens=16384, "
            f"max_running_requests={settings.max_num_seqs}, context_len={settings.max_model_len_tokens}, "
            "available_gpu_mem=9.81 GB"
        ),
    )
    yield life.since, "The server is fired up and ready to roll!"
