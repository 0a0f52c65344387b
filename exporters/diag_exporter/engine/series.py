"""The families about engines, and their rows out of readings."""

from __future__ import annotations

from diag_exporter.engine.facts import Facts
from diag_exporter.engine.poller import Reading
from diag_exporter.families import Family, Row, Rows

__all__ = ["FAMILIES", "engine_rows"]

_SETTINGS = "/server_info, the engine's log or its command line"
_UNTOLD = "The engine is not up yet, or tells it nowhere."

FAMILIES: tuple[Family, ...] = (
    Family("llmdiag_engine_up", "gauge", "1 when the engine answers /health well, else 0.",
           ("engine",), "No --engine is given.", "/health"),
    Family("llmdiag_engine_health_seconds", "gauge", "How long the last good answer of /health took.",
           ("engine",), "The last poll was not answered well.", "/health"),
    Family("llmdiag_engine_health_failures_total", "counter",
           "Polls not answered well: refused, timeout, broken (connection), status (5xx and the like).",
           ("engine", "reason"), "No --engine is given.", "/health"),
    Family("llmdiag_engine_facts_timestamp_seconds", "gauge", "When the facts below were read.",
           ("engine",), "The engine was not up yet.", "the exporter"),
    Family("llmdiag_engine_info", "info", "Which engine it is; labels not known are empty.",
           ("engine", "producer", "version", "model", "kv_cache_dtype", "block_size"),
           "The engine was not up yet.", "/version, /v1/models, /metrics"),
    Family("llmdiag_engine_start_time_seconds", "gauge", "When the server's process began, unix time.",
           ("engine",), _UNTOLD, "process_start_time_seconds on its /metrics, else /proc"),
    Family("llmdiag_model_max_len_tokens", "gauge", "Longest context (prompt and answer) a model takes.",
           ("engine", "model"), _UNTOLD, f"/v1/models, else {_SETTINGS}"),
    Family("llmdiag_engine_kv_capacity_tokens", "gauge",
           "Tokens the KV cache holds, data-parallel engines of one server together.",
           ("engine",), _UNTOLD, "cache_config_info on its /metrics (older engines: blocks times size)"),
    Family("llmdiag_engine_max_num_seqs", "gauge", "Most sequences in one batch.",
           ("engine",), _UNTOLD, _SETTINGS),
    Family("llmdiag_engine_max_num_batched_tokens", "gauge",
           "Token budget of one step (SGLang: of one prefill chunk).", ("engine",), _UNTOLD, _SETTINGS),
    Family("llmdiag_engine_prefix_caching_enabled", "gauge", "1 when prefixes are cached, 0 when not.",
           ("engine",), _UNTOLD, f"cache_config_info on its /metrics, else {_SETTINGS}"),
)  # fmt: skip


def engine_rows(readings: dict[str, Reading]) -> Rows:
    """Rows by family; ``readings`` by the engine's name."""
    rows: dict[str, list[Row]] = {}

    def put(family: str, value: float | bool | None, *labels: str) -> None:
        if value is not None:
            rows.setdefault(family, []).append(Row(labels, float(value)))

    for engine, reading in readings.items():
        put("llmdiag_engine_up", reading.up, engine)
        put("llmdiag_engine_health_seconds", reading.health_seconds, engine)
        for reason, count in reading.failures.items():
            put("llmdiag_engine_health_failures_total", count, engine, reason)
        facts = reading.facts
        put("llmdiag_engine_facts_timestamp_seconds", reading.facts_time, engine)
        if reading.facts_time is not None:
            put("llmdiag_engine_info", 1.0, engine, *_identity(facts))
        put("llmdiag_engine_start_time_seconds", facts.start_time, engine)
        for model, tokens in facts.max_lengths.items():
            put("llmdiag_model_max_len_tokens", tokens, engine, model)
        put("llmdiag_engine_kv_capacity_tokens", facts.kv_capacity_tokens, engine)
        put("llmdiag_engine_max_num_seqs", facts.max_num_seqs, engine)
        put("llmdiag_engine_max_num_batched_tokens", facts.max_num_batched_tokens, engine)
        put("llmdiag_engine_prefix_caching_enabled", facts.prefix_caching, engine)
    return rows


def _identity(facts: Facts) -> tuple[str, str, str, str, str]:
    model = facts.models[0] if facts.models else ""
    block = "" if facts.block_size_tokens is None else str(facts.block_size_tokens)
    return facts.producer, facts.version, model, facts.kv_cache_dtype, block
