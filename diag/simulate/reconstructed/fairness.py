"""Family D: one request in the way of many."""

from __future__ import annotations

from diag.simulate.parts import Bundle
from diag.simulate.profiles import constant
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask
from diag.simulate.reconstructed.service import calm, machine, points, serve
from diag.simulate.reconstructed.stage import Stage

__all__ = ["FAIRNESS"]

_FAMILY = "D prefill-fairness"


def _blocked_head() -> Bundle:
    stage = Stage()
    waves = (1260.0, 1440.0, 1620.0, 1800.0, 1980.0, 2160.0)
    giants = tuple(Ask(at, 16_000, 300, queue_seconds=29.2, tenant="long") for at in waves)
    small = tuple(Ask(at + 0.2 + 0.02 * n, 1_000, 150, queue_seconds=31.8) for at in waves for n in range(8))
    residents = tuple(Ask(at - 40.0, 15_000, 3_000, queue_seconds=0.02, tenant="long") for at in waves)
    queue = points(*(pair for at in waves for pair in ((at - 1e-3, 0.004), (at, 31.8), (at + 31.8, 0.004))))
    traffic = calm(
        requests_per_second=0.2, prompt_tokens=1_000.0, queue_seconds=queue, pool_tokens=24_000.0, cached_ratio=0.0,
        asks=(*giants, *small, *residents),
    )  # fmt: skip
    made = serve(
        stage, traffic, Page(config={"kv_cache_size_tokens": "24000", "enable_prefix_caching": "True"})
    )
    machine(stage, made)
    return stage.bundle()


def _long_prefill() -> Bundle:
    stage = Stage()
    waves = (1290.0, 1500.0, 1710.0, 1920.0, 2130.0, 2310.0)
    giants = tuple(Ask(at, 128_000, 400, queue_seconds=0.0, tenant="long") for at in waves)
    taken = 128_000 / 8_000.0
    queue = points(*(pair for at in waves for pair in ((at - 1e-3, 0.004), (at, taken), (at + taken, 0.004))))
    between = points(
        *(
            pair
            for at in waves
            for pair in ((at, 0.022), (at, 0.028), (at + taken, 0.028), (at + taken, 0.022))
        )
    )
    traffic = calm(
        queue_seconds=queue, token_seconds=between, pool_tokens=1_200_000.0, asks=giants, cached_ratio=0.0
    )
    page = Page(
        config={"kv_cache_size_tokens": "1200000", "enable_prefix_caching": "True"},
        preemptions_per_second=constant(0.0),
    )
    made = serve(stage, traffic, page)
    machine(stage, made)
    return stage.bundle()


FAIRNESS = (
    Reconstructed(
        "ITF-HOL-33499", _FAMILY, "vllm-project/vllm#33499", "reporter-confirmed",
        "eight prompts of 1,000 tokens behind one of 16,000 that does not fit yet: TTFT 31.332 s for the big one, 32.038 s "
        "median for the small ones.",
        "the same wave six times after a calm beginning; the resident request that holds the blocks; the pool (24,000).",
        Label("head_of_line_blocking", "the queue's walk stops at the first request that gets no blocks",
              must_not=("slow_gpu", "prefill_interference"), onset_seconds=1260.0),
        _blocked_head,
    ),
    Reconstructed(
        "ITF-LONGPREFILL-21495", _FAMILY, "vllm-project/vllm#21495", "likely",
        "after a prompt of 128,000 tokens short ones stay pending until its prefill ends; decodes go on.",
        "six such prompts, 8,000 tokens a second of prefill, the chat traffic, GPU, host.",
        Label("head_of_line_blocking", "one partial prefill takes the whole budget", accept=("prefill_interference",),
              must_not=("kv_cache_exhaustion", "slow_gpu", "thermal_throttle"), onset_seconds=1290.0),
        _long_prefill,
    ),
)  # fmt: skip
