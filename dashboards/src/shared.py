"""Panels that stand on more than one board, each made once."""

from __future__ import annotations

from dashboards.src.limits import line
from dashboards.src.model import Panel, State
from dashboards.src.queries import ENGINE, of, raw
from diag.assets.rules import thresholds as t
from diag.signals.algebra import spellings

__all__ = [
    "NO_SGLANG_ERRORS",
    "NO_SGLANG_TRANSFERS",
    "UP_STATES",
    "computed_tokens",
    "e2e",
    "foreign_sm",
    "hit_ratio",
    "inter_token",
    "kv_failures",
    "kv_usage",
    "link_downs",
    "lookup_misses",
    "preemptions",
    "prompt_lengths",
    "queue",
    "running",
    "slow_first_tokens",
    "temperature",
    "thermal",
    "ttft",
    "up",
    "waiting",
]

NO_SGLANG_TRANSFERS = {"sglang": "the simulated SGLang service moves no KV between engines"}
NO_SGLANG_ERRORS = {"sglang": "SGLang's counters of errors and aborts appear with the first of them"}
"""Why a query finds nothing in the incidents at hand, for boards that ask the same."""

UP_STATES = (State(0.0, "down", "red"), State(1.0, "up", "green"))


def ttft(width: int = 8) -> Panel:
    """Time to first token of the engines."""
    return Panel(
        "Time to first token",
        "As the engine saw it: median and 95th percentile. A median that stays while the tail climbs means "
        "that some requests are hit, not all.",
        "s",
        (*of("ttft_seconds_p95", "p95"), *of("ttft_seconds_p50", "p50")),
        dashed="p50",
        width=width,
        runbooks=("slow_first_token", "context_growth", "load_burst", "head_of_line_blocking"),
        limits=(line("LLMTTFTBudgetBurnFast", t.TTFT_BOUND), line("LLMHeadOfLineBlocking", t.TTFT_TAIL)),
        drill="engine",
    )


def _slow(engine: str, bound: str) -> str:
    """Share of first tokens later than ``bound``, by model."""
    where = f'{ENGINE},model_name=~"$model"'
    family = spellings(f"{engine}:time_to_first_token_seconds")
    every = " or ".join(f"rate({name}_count{{{where}}}[W])" for name in family)
    within = " or ".join(f'rate({name}_bucket{{le="{bound}",{where}}}[W])' for name in family)
    by = "sum by (cluster, job, model_name)"
    return f"{by} (({every}) - ignoring (le) ({within})) / {by} ({every})"


def slow_first_tokens(width: int = 8) -> Panel:
    """Share of first tokens beyond the service level's bound."""
    return Panel(
        "First tokens beyond the bound",
        f"Share of first tokens later than {t.TTFT_BOUND} s (SGLang: {t.SGLANG_TTFT_BOUND} s, its histogram "
        "has no bound at 5). The lines are the burn rates of a 99 % objective; the alerts look at two windows.",
        "percentunit",
        (
            raw(_slow("vllm", f"{t.TTFT_BOUND.value}"), "{{job}} {{model_name}}", "vllm"),
            raw(_slow("sglang", f"{t.SGLANG_TTFT_BOUND.value}"), "{{job}} {{model_name}}", "sglang"),
        ),
        width=width,
        maximum=1.0,
        runbooks=("slow_first_token",),
        limits=(
            line("LLMTTFTBudgetBurnFast", t.BURN_FAST),
            line("LLMTTFTBudgetBurnMedium", t.BURN_MEDIUM),
            line("LLMTTFTBudgetBurnSlow", t.BURN_SLOW),
        ),
    )


def inter_token(width: int = 8) -> Panel:
    """Time between tokens."""
    return Panel(
        "Time between tokens",
        "Mean and 99th percentile. A mean that moves on one instance points to its card or host, a tail that "
        "moves when prompts are long points to prefill in the same step.",
        "s",
        (*of("inter_token_seconds_p99", "p99"), *of("inter_token_seconds_mean", "mean")),
        dashed="mean",
        width=width,
        runbooks=("slow_tokens", "prefill_interference", "thermal_throttle", "slow_gpu"),
        limits=(line("LLMInterTokenSlow", t.INTER_TOKEN_BOUND),),
        drill="engine",
    )


def e2e(width: int = 8) -> Panel:
    """Duration of whole answers."""
    return Panel(
        "Whole answer",
        "Duration of finished requests, 95th percentile and mean. Requests that hang are not in it until they "
        "end: look at waiting and running beside it.",
        "s",
        (*of("e2e_seconds_p95", "p95"), *of("e2e_seconds_mean", "mean")),
        dashed="mean",
        width=width,
        runbooks=("slow_tokens", "long_outputs"),
        drill="engine",
    )


def waiting(width: int = 8) -> Panel:
    """Requests that wait for admission."""
    return Panel(
        "Waiting requests",
        "Not yet admitted. Zero does not mean that nobody waits: gauges are published between steps, and a "
        "giant prefill holds that up.",
        "short",
        of("waiting_requests"),
        width=width,
        runbooks=("queue_growing", "load_burst", "routing_hotspot", "oversized_request"),
        alerts=("LLMQueueStandstill",),
        limits=(line("LLMQueueGrowing", t.QUEUE_LONG), line("LLMRoutingHotspot", t.QUEUE_LONG)),
        drill="engine",
    )


def running(width: int = 8) -> Panel:
    """Requests in the running batch."""
    return Panel(
        "Running requests",
        "In the batch, mean over the window. A flat top with others waiting and cache free is a limit on "
        "sequences; some running and no token coming is a stall.",
        "short",
        of("running_requests"),
        width=width,
        runbooks=("sequence_limit", "standstill", "routing_hotspot"),
        alerts=("LLMEngineStalled",),
        drill="engine",
    )


def queue(width: int = 8) -> Panel:
    """Time from arrival to first scheduling."""
    return Panel(
        "Time in the queue",
        "From arrival to the first scheduling, mean of finished requests, so it lags behind a queue that "
        "does not drain.",
        "s",
        of("queue_seconds_mean"),
        width=width,
        runbooks=("queue_growing", "head_of_line_blocking"),
        drill="engine",
    )


def kv_usage(width: int = 8) -> Panel:
    """Use of the KV pool."""
    return Panel(
        "KV pool in use",
        "Largest over the window, since it dips between preemptions; blocks of evictable cached prefixes count "
        "as free. Full alone is healthy: full with requests waiting is not.",
        "percentunit",
        of("kv_cache_usage_ratio"),
        width=width,
        maximum=1.0,
        runbooks=("kv_cache_exhaustion", "kv_block_leak", "context_growth"),
        limits=(line("LLMKVCacheSaturated", t.KV_FULL),),
        drill="cache",
    )


def preemptions(width: int = 8) -> Panel:
    """Requests thrown out of the batch."""
    return Panel(
        "Preemptions",
        "Requests put out of the batch for want of blocks and computed again later. A few are how the pool "
        "is meant to work.",
        "reqps",
        of("preemptions_per_second"),
        width=width,
        runbooks=("kv_cache_exhaustion", "context_growth"),
        limits=(line("LLMPreemptionShareHigh", t.PREEMPTIONS_FLOOR),),
        drill="cache",
    )


def hit_ratio(width: int = 8) -> Panel:
    """Prefix cache hits."""
    return Panel(
        "Prefix cache hits",
        "Share of the tokens asked for that were cached. No line while caching is off: nobody asks then. The "
        "alert compares with the same instance a day before.",
        "percentunit",
        of("prefix_cache_hit_ratio"),
        width=width,
        maximum=1.0,
        runbooks=("prefix_cache_broken", "prefix_cache_scattered", "prefix_cache_off"),
        limits=(line("LLMPrefixCacheHitCollapse", t.HITS_WORTH_HAVING),),
        drill="cache",
    )


def computed_tokens(width: int = 8) -> Panel:
    """Prompt tokens computed against prompt tokens served."""
    return Panel(
        "Prompt tokens, served and computed",
        "What came in and what had to be computed; the distance is the prefix cache's work. Recomputation "
        "after a preemption is in neither.",
        "count:tok/s",
        (
            *of("prompt_tokens_per_second", "served"),
            *of("computed_prompt_tokens_per_second", "computed"),
        ),
        dashed="computed",
        width=width,
        runbooks=("prefix_cache_off", "prefix_cache_broken", "context_growth"),
        alerts=("LLMPrefixCachingDisabled",),
        drill="cache",
    )


def prompt_lengths(width: int = 8) -> Panel:
    """Lengths of prompts."""
    return Panel(
        "Prompt length",
        "Mean and 99th percentile by the engine's own histogram, whose bounds are 1-2-5: read the mean for "
        "growth and the tail for giants.",
        "short",
        (
            *of("prompt_tokens_per_request_p99", "p99"),
            *of("prompt_tokens_per_request_mean", "mean"),
        ),
        dashed="mean",
        width=width,
        runbooks=("context_growth", "head_of_line_blocking"),
        limits=(line("LLMPromptLengthGrowing", t.PROMPTS_LONG),),
        drill="sessions",
    )


def temperature(width: int = 8) -> Panel:
    """Core temperature."""
    return Panel(
        "Core temperature",
        "Heat alone is no fault: look whether the clock gives way and whether a thermal reason holds it.",
        "celsius",
        of("gpu_temperature_celsius"),
        width=width,
        runbooks=("thermal_throttle",),
        drill="gpu",
        variable="host",
    )


def thermal(width: int = 8) -> Panel:
    """Share of time that heat held the clock."""
    return Panel(
        "Clock held down by heat",
        "Share of time, from the driver's own counters where the exporter has them, else from samples.",
        "percentunit",
        of("gpu_thermal_throttle_ratio"),
        width=width,
        maximum=1.0,
        runbooks=("thermal_throttle", "power_cap"),
        limits=(line("GPUThermalThrottle", t.THERMAL_SHARE),),
        drill="gpu",
        variable="host",
    )


def foreign_sm(width: int = 8) -> Panel:
    """SM time of processes that do not serve."""
    return Panel(
        "SM time of other processes",
        "Share of the card's time that went to processes which serve no model. Compare its spells with the "
        "slow ones of the engine on that card.",
        "percentunit",
        of("gpu_foreign_sm_ratio"),
        width=width,
        maximum=1.0,
        runbooks=("noisy_neighbour",),
        limits=(line("GPUForeignProcess", t.FOREIGN_SM),),
        drill="gpu",
        variable="host",
    )


def link_downs(width: int = 8) -> Panel:
    """InfiniBand links that went down."""
    return Panel(
        "InfiniBand links that went down",
        "Events in an hour by port, moving. The line is the alert's: one event in an hour happens, two are "
        "flapping.",
        "short",
        (
            raw(
                'increase(node_infiniband_link_downed_total{cluster=~"$cluster",instance=~"$host"}[1h])',
                "{{instance}} {{device}}:{{port}}",
                "node",
            ),
        ),
        width=width,
        runbooks=("fabric_flap",),
        limits=(line("IBLinkFlapping", t.IB_LINK_DOWNS),),
        drill="fabric",
        variable="host",
    )


def kv_failures(width: int = 8) -> Panel:
    """KV transfers that failed."""
    return Panel(
        "Failed KV transfers",
        "Failed or expired transfers a second. A request whose KV does not come is computed again or fails: "
        "prefill and queue follow.",
        "reqps",
        of("kv_transfer_failures_per_second", absent=NO_SGLANG_TRANSFERS),
        width=width,
        runbooks=("kv_transfer_failure", "fabric_flap"),
        limits=(line("KVTransferFailing", t.KV_TRANSFER_FAILURES),),
        drill="fabric",
    )


def lookup_misses(width: int = 8) -> Panel:
    """Keys that a peer was believed to hold."""
    return Panel(
        "Keys believed in and not there",
        "Keys of shared KV that a get did not find where the metadata said. Evictions cause a few; many after "
        "a restart are beliefs in a cache that is gone.",
        "cps",
        of("kv_lookup_misses_per_second"),
        width=width,
        runbooks=("stale_cache_peer",),
        limits=(line("KVCachePeerStale", t.KV_LOOKUP_MISSES),),
        drill="fabric",
    )


def up(width: int = 8) -> Panel:
    """Whether targets answer their scrapes."""
    return Panel(
        "Scrape targets",
        "Whether each target answered its scrapes. A gap is a target that left service discovery; one that is "
        "up with still gauges may be frozen.",
        "none",
        (raw('min by (job, instance) (min_over_time(up{cluster=~"$cluster"}[W]))', "{{job}} {{instance}}", "process"),),
        kind="state-timeline",
        width=width,
        runbooks=("target_down", "telemetry_fault"),
        alerts=("LLMTargetDown",),
        states=UP_STATES,
        maximum=1.0,
    )  # fmt: skip
