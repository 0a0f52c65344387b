"""Engine and queue: who waits, where the time goes, what work comes, how the steps run."""

from __future__ import annotations

from dashboards.src import shared
from dashboards.src.limits import line
from dashboards.src.model import Board, Panel, Query, Row
from dashboards.src.queries import ENGINE, PROXIED, expression, of, raw
from diag.assets.rules import thresholds as t
from diag.engines import engine

__all__ = ["ENGINES"]

_REASONS = (
    raw(
        "sum by (cluster, job, instance, reason) (avg_over_time("
        f'vllm:num_requests_waiting_by_reason{{{ENGINE},model_name=~"$model"}}[W]))',
        "{{instance}} {{reason}}",
        "vllm",
    ),
)
_WAITING_BY_REASON = Panel(
    "Waiting, by reason",
    "capacity waits for KV blocks, slots or budget; deferred for something else, such as an adapter, a grammar "
    "or a transfer. vLLM since 0.20 says which.",
    "short",
    _REASONS,
    width=8,
    runbooks=("queue_growing", "grammar_stall", "kv_transfer_failure"),
    drill="engine",
)
_SLOTS = Panel(
    "Running, of the most allowed",
    "Most running in the window over max_num_seqs, which diag-exporter reads from the engine. Pinned near 1 with "
    "cache free: the limit is what makes others wait.",
    "percentunit",
    (
        Query(
            f"({expression('running_requests_max', engine('vllm'))}) / on (cluster, instance) group_left () "
            "(label_replace(max by (cluster, engine) (llmdiag_engine_max_num_seqs{"
            f'{PROXIED}}}), "instance", "$1", "engine", "(.+)"))',
            "{{instance}}",
            "vllm",
        ),
        Query(
            f"({expression('running_requests_max', engine('sglang'))}) / on (cluster, instance) group_left () "
            "(label_replace(max by (cluster, engine) (llmdiag_engine_max_num_seqs{"
            f'{PROXIED}}}), "instance", "$1", "engine", "(.+)"))',
            "{{instance}}",
            "sglang",
        ),
    ),
    maximum=1.0,
    runbooks=("sequence_limit",),
    limits=(line("LLMSequenceLimit", t.SEQUENCES_PINNED),),
    drill="engine",
)
_PHASES = Panel(
    "Where the time goes",
    "Mean seconds of finished requests in the queue, in prefill (with recomputation after a preemption) and in "
    "decode. The phase that grew tells where to look.",
    "s",
    (
        *of("queue_seconds_mean", "queue"),
        *of("prefill_seconds_mean", "prefill"),
        *of("decode_seconds_mean", "decode"),
    ),
    width=12,
    runbooks=("load_burst", "head_of_line_blocking", "slow_tokens"),
    drill="engine",
)
_ARRIVALS = Panel(
    "Requests",
    "First tokens a second (work taken up) and requests finished a second. First tokens above finished for long: "
    "requests pile up, or clients leave.",
    "reqps",
    (*of("first_tokens_per_second", "first tokens"), *of("finished_requests_per_second", "finished")),
    dashed="finished",
    runbooks=("load_burst", "abandoned_requests"),
    drill="engine",
)
_ANSWERS = Panel(
    "Answer length",
    "Tokens of finished answers, mean. Longer answers keep slots and cache taken: waiting follows with no more "
    "requests than before.",
    "short",
    of("output_tokens_per_request_mean"),
    runbooks=("long_outputs",),
    drill="engine",
)
_TOKENS = Panel(
    "Answer tokens",
    "Made a second. Flat at zero with requests running is a stall; a lower plateau at the same batch is a slower "
    "machine.",
    "count:tok/s",
    of("generation_tokens_per_second"),
    runbooks=("standstill", "engine_stall", "slow_gpu"),
    alerts=("LLMEngineStalled",),
    drill="gpu",
)
_STEPS = Panel(
    "Engine steps",
    "Steps a second. Fewer at an equal batch: each takes longer, for the GPU, the host or grammars.",
    "cps",
    of("steps_per_second"),
    runbooks=("cuda_graph_gap", "host_cpu_starvation", "runtime_pauses"),
    drill="engine",
)
_STEP_TOKENS = Panel(
    "Tokens per step",
    "Mean. Spikes are prefills that share steps with answers: the time between tokens shows them too.",
    "short",
    of("step_tokens_mean"),
    runbooks=("prefill_interference",),
    drill="engine",
)
_DRAFTS = Panel(
    "Draft tokens accepted",
    "Share that the model confirmed. When it falls, speculation costs more than it gives.",
    "percentunit",
    of(
        "spec_decode_acceptance_ratio",
        absent={
            "sglang": "no SGLang incident at hand runs with speculative decoding",
        },
    ),
    maximum=1.0,
    runbooks=("spec_decode_collapse",),
    drill="engine",
)
_EAGER = Panel(
    "Steps without a CUDA graph, grammars waiting",
    "SGLang alone counts both: the share of decode passes run eagerly, and requests whose grammar is not ready.",
    "short",
    (
        *of("eager_decode_ratio", "eager"),
        *of("grammar_queue_requests", "grammars"),
    ),
    runbooks=("cuda_graph_gap", "grammar_stall"),
    drill="engine",
)
_UPTIME = Panel(
    "Time since start",
    "A fall to zero is a restart: lost work, cold caches, minutes of warm-up. Several in a row are a loop.",
    "s",
    tuple(
        Query(f"time() - ({query.expr})", query.legend, query.producer, absent=query.absent)
        for query in of("engine_start_time_seconds")
    ),
    runbooks=("engine_restart", "port_conflict", "config_change"),
    alerts=("LLMEngineRestartLoop", "LLMEngineConfigChanged"),
    drill="engine",
)
_BIND = Panel(
    "Starts that failed on a taken port",
    "In a quarter of an hour, from the engine's log as diag-exporter follows it.",
    "short",
    (
        raw(
            f"increase(llmdiag_engine_bind_failures_total{{{PROXIED}}}[15m])",
            "{{engine}}",
            "llmdiag",
            "no incident at hand has diag-exporter following an engine's log",
        ),
    ),
    runbooks=("port_conflict",),
    alerts=("LLMEnginePortCollision",),
    drill="engine",
    label="engine",
)
_HTTP = Panel(
    "Answers with an error",
    "HTTP 5xx answers and requests the engine itself counted as aborted or failed. vLLM V1 counts no client that "
    "leaves.",
    "reqps",
    (
        *of("http_errors_per_second", "5xx", shared.NO_SGLANG_ERRORS),
        *of("aborted_requests_per_second", "aborted", shared.NO_SGLANG_ERRORS),
    ),
    dashed="aborted",
    runbooks=("failing_requests", "aborted_requests"),
    limits=(line("LLMRequestErrorsHigh", t.ERRORS_FLOOR),),
    drill="tenants",
)

ENGINES = Board(
    "engine",
    "llm-diag / Engine and queue",
    "Who waits and why, where the time goes, what work comes, how the steps run.",
    (
        Row(
            "Waiting",
            ("load_burst", "sequence_limit", "oversized_request", "head_of_line_blocking", "routing_hotspot"),
            (shared.waiting(), shared.running(), _WAITING_BY_REASON, shared.queue(), _SLOTS, shared.ttft()),
        ),
        Row(
            "Where the time goes",
            ("prefill_interference", "head_of_line_blocking", "slow_gpu"),
            (_PHASES, shared.inter_token(12)),
        ),
        Row(
            "What work comes",
            ("load_burst", "long_outputs", "context_growth"),
            (_ARRIVALS, shared.prompt_lengths(), _ANSWERS),
        ),
        Row(
            "How the steps run",
            ("engine_stall", "cuda_graph_gap", "spec_decode_collapse", "grammar_stall", "runtime_pauses"),
            (_TOKENS, _STEPS, _STEP_TOKENS, _DRAFTS, _EAGER, shared.e2e()),
        ),
        Row(
            "The process",
            ("engine_restart", "port_conflict", "config_change", "telemetry_fault"),
            (_UPTIME, _HTTP, _BIND, shared.up(24)),
        ),
    ),
)
