"""The families about sessions and tenants, and their rows out of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from diag_exporter.families import Family, Row, Rows
from diag_exporter.sessions.buckets import (
    AGE_BOUNDS,
    LENGTH_BINS,
    RATIO_BOUNDS,
    TOKEN_BOUNDS,
    TURN_BOUNDS,
    Buckets,
)
from diag_exporter.sessions.table import OTHER, SessionTable, label_text
from diag_exporter.sessions.tallies import ModelTally, Session

__all__ = ["FAMILIES", "MaxLength", "session_rows"]

MaxLength = Callable[[str], "int | None"]
"""The longest context a model takes, in tokens; None where nobody knows."""

_NOW = "As of now, not since start: take quantiles of it as it stands, without rate()."
_SRC = "request events"

FAMILIES: tuple[Family, ...] = (
    Family("llmdiag_active_sessions", "gauge", "Sessions with a request in the last 15 minutes (as set).",
           ("model",), "No session was seen yet.", _SRC),
    Family("llmdiag_active_session_context_tokens", "histogram",
           f"Context (prompt and answer) of active sessions at their last request. {_NOW}",
           ("model",), "No active session, or no feed tells token counts.", _SRC),
    Family("llmdiag_active_session_context_ratio", "histogram",
           f"The same as a share of the model's maximum length. {_NOW}",
           ("model",), "The model's maximum length is not known.", f"{_SRC}, /v1/models"),
    Family("llmdiag_active_session_age_seconds", "histogram",
           f"Time since the first request seen of each active session. {_NOW}",
           ("model",), "No active session.", _SRC),
    Family("llmdiag_active_session_turns", "histogram", f"Requests seen of each active session. {_NOW}",
           ("model",), "No active session.", _SRC),
    Family("llmdiag_request_context_tokens", "histogram", "Context (prompt and answer) of each request.",
           ("model",), "No feed tells token counts.", _SRC),
    Family("llmdiag_session_growth_tokens", "histogram",
           "Prompt tokens that a session's request has more than the one before.",
           ("model",), "No session had a second request.", _SRC),
    Family("llmdiag_session_shrinks_total", "counter",
           "Requests whose prompt was shorter than their session's last: history cut, or two conversations.",
           ("model",), "No request was seen.", _SRC),
    Family("llmdiag_ttft_seconds", "histogram", "Time to first token by prompt length.",
           ("model", "prompt_tokens"), "No feed tells it, or no such prompt came.", _SRC),
    Family("llmdiag_queue_seconds", "histogram", "Time in the engine's queue by prompt length.",
           ("model", "prompt_tokens"), "No feed tells it, or no such prompt came.", _SRC),
    Family("llmdiag_requests_total", "counter", "Requests by how they ended.",
           ("model", "status"), "No request was seen.", _SRC),
    Family("llmdiag_request_tokens_total", "counter", "Tokens of requests: prompt or output.",
           ("model", "kind"), "No request was seen.", _SRC),
    Family("llmdiag_repeat_known_prompt_tokens_total", "counter",
           "Prompt tokens of requests of which it is known what came before.",
           ("model",), "No request of a known session was seen.", _SRC),
    Family("llmdiag_prompt_repeated_tokens_total", "counter",
           "Prompt tokens that the session had sent before (at least; answers not counted).",
           ("model",), "No request of a known session was seen.", _SRC),
    Family("llmdiag_cache_known_prompt_tokens_total", "counter",
           "Prompt tokens of requests whose cached tokens are known.",
           ("model",), "No feed tells cached tokens.", _SRC),
    Family("llmdiag_prompt_cached_tokens_total", "counter", "Prompt tokens served from a prefix cache.",
           ("model",), "No feed tells cached tokens.", _SRC),
    Family("llmdiag_prompt_repeat_ratio", "gauge",
           "Share of prompt tokens that were sent before, over the last 5 minutes (as set).",
           ("model",), "No request of a known session in the window.", _SRC),
    Family("llmdiag_prompt_cached_ratio", "gauge", "Share of prompt tokens that were cached, same window.",
           ("model",), "No feed tells cached tokens, or no request came.", _SRC),
    Family("llmdiag_prompt_reuse_headroom_ratio", "gauge",
           "Share of prompt tokens that were sent before and yet not cached: repeat less cached, at least 0.",
           ("model",), "One of the two is not known.", _SRC),
    Family("llmdiag_aborted_tokens_total", "counter", "Prompt and output tokens of aborted requests.",
           ("model",), "No request was seen.", _SRC),
    Family("llmdiag_tokens_after_abort_total", "counter", "Tokens made after the client had left.",
           ("model",), "No feed tells it.", _SRC),
    Family("llmdiag_active_tenants", "gauge", "Tenants that used tokens in the last 5 minutes (as set).",
           (), "No feed tells tenants.", _SRC),
    Family("llmdiag_tenant_token_share_ratio", "gauge",
           "Share of the window's tokens (of known tenants) by tenant; the largest, and other.",
           ("tenant",), "No tenant used tokens in the window.", _SRC),
    Family("llmdiag_tenant_tokens_total", "counter",
           "Tokens by tenant since it came on the page; before that they are in other.",
           ("tenant", "kind"), "No feed tells tenants.", _SRC),
    Family("llmdiag_tenant_requests_total", "counter", "Requests by tenant, counted likewise.",
           ("tenant",), "No feed tells tenants.", _SRC),
    Family("llmdiag_tenant_request_seconds_total", "counter",
           "Durations of finished requests by tenant; its rate is the mean number in flight.",
           ("tenant",), "No feed tells tenants.", _SRC),
    Family("llmdiag_tenant_in_flight_requests", "gauge", "Requests in flight by tenant (proxy only).",
           ("tenant",), "No feed sees requests start.", "the proxy"),
    Family("llmdiag_session_source_total", "counter",
           "Requests by what told their session: user is a person, fingerprint a guess, none nothing.",
           ("source",), "No request was seen.", _SRC),
    Family("llmdiag_sessions_held", "gauge", "Sessions in memory, active or not.", (), "", _SRC),
    Family("llmdiag_sessions_evicted_total", "counter",
           "Sessions dropped while young because the table was full: ages and growth are then too small.",
           (), "", _SRC),
)  # fmt: skip


class _Page:
    """Collects rows by family."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}

    def put(self, name: str, value: float | Buckets, *labels: str) -> None:
        shown = value.frozen() if isinstance(value, Buckets) else float(value)
        self.rows.setdefault(name, []).append(Row(labels, shown))


def session_rows(table: SessionTable, max_length: MaxLength | None = None) -> Rows:
    """All rows as of now."""
    page, now = _Page(), table.clock()
    with table.lock:
        table.settle()
        active = table.active(now)
        for model in table.all_models():
            _model_rows(page, model)
            _reuse_rows(page, table, model, now)
        _tenant_rows(page, table, now)
        page.put("llmdiag_sessions_held", len(table.sessions))
        page.put("llmdiag_sessions_evicted_total", table.evicted)
        if any(table.sources.values()):
            for source, count in table.sources.items():
                page.put("llmdiag_session_source_total", count, source)
    _active_rows(page, active, table.all_models(), now, max_length)
    return page.rows


def _model_rows(page: _Page, model: ModelTally) -> None:
    name = model.name
    for status, count in model.requests.items():
        page.put("llmdiag_requests_total", count, name, status)
    page.put("llmdiag_request_tokens_total", model.prompt_tokens, name, "prompt")
    page.put("llmdiag_request_tokens_total", model.output_tokens, name, "output")
    page.put("llmdiag_aborted_tokens_total", model.aborted_tokens, name)
    page.put("llmdiag_session_shrinks_total", model.shrinks, name)
    if model.after_abort is not None:
        page.put("llmdiag_tokens_after_abort_total", model.after_abort, name)
    for family, buckets in (
        ("llmdiag_request_context_tokens", model.context),
        ("llmdiag_session_growth_tokens", model.growth),
    ):
        if any(buckets.counts):
            page.put(family, buckets, name)
    for family, bins in (("llmdiag_ttft_seconds", model.ttft), ("llmdiag_queue_seconds", model.queue)):
        for label, held in zip(LENGTH_BINS, bins, strict=True):
            if held is not None:
                page.put(family, held, name, label)


def _reuse_rows(page: _Page, table: SessionTable, model: ModelTally, now: float) -> None:
    name = model.name
    if model.session_prompt:
        page.put("llmdiag_repeat_known_prompt_tokens_total", model.session_prompt, name)
        page.put("llmdiag_prompt_repeated_tokens_total", model.session_repeated, name)
    if model.cached_prompt:
        page.put("llmdiag_cache_known_prompt_tokens_total", model.cached_prompt, name)
        page.put("llmdiag_prompt_cached_tokens_total", model.cached, name)
    repeated, cached = table.ratios(model, now)
    if repeated is not None:
        page.put("llmdiag_prompt_repeat_ratio", repeated, name)
    if cached is not None:
        page.put("llmdiag_prompt_cached_ratio", cached, name)
    if repeated is not None and cached is not None:
        page.put("llmdiag_prompt_reuse_headroom_ratio", max(repeated - cached, 0.0), name)


def _tenant_rows(page: _Page, table: SessionTable, now: float) -> None:
    shares = table.turn(now)
    if table.tenants:
        page.put("llmdiag_active_tenants", table.active_tenants)
    sums: dict[tuple[str, tuple[str, ...]], float] = {}

    def add(family: str, value: float, tenant: str, *labels: str) -> None:
        # Two names can look the same once they are cut to a label.
        key = (family, (label_text(tenant) if tenant else OTHER, *labels))
        sums[key] = sums.get(key, 0.0) + value

    for tenant, share in shares.items():
        add("llmdiag_tenant_token_share_ratio", share, tenant)
    rest = {"": table.other} if table.tenants else {}
    for tenant, tally in (table.tenants | rest).items():
        add("llmdiag_tenant_tokens_total", tally.prompt_tokens, tenant, "prompt")
        add("llmdiag_tenant_tokens_total", tally.output_tokens, tenant, "output")
        add("llmdiag_tenant_requests_total", tally.requests, tenant)
        add("llmdiag_tenant_request_seconds_total", tally.seconds, tenant)
    if table.sees_starts:
        for tenant in (*table.tenants, ""):
            add("llmdiag_tenant_in_flight_requests", 0.0, tenant)
        for tenant, count in table.in_flight.items():
            add("llmdiag_tenant_in_flight_requests", count, tenant if tenant in table.tenants else "")
    for (family, labels), value in sums.items():
        page.put(family, value, *labels)


def _active_rows(
    page: _Page, active: list[Session], models: list[ModelTally], now: float, max_length: MaxLength | None
) -> None:
    by_model: dict[int, list[Session]] = {id(model): [] for model in models}
    for session in active:
        by_model.setdefault(id(session.model), []).append(session)
    for model in models:
        held = by_model[id(model)]
        page.put("llmdiag_active_sessions", len(held), model.name)
        if not held:
            continue
        contexts = [session.context for session in held if session.context]
        limit = max_length(model.name) if max_length is not None else None
        for family, buckets in _histograms(held, contexts, limit, now):
            page.put(family, buckets, model.name)


def _histograms(
    sessions: list[Session], contexts: list[int], limit: int | None, now: float
) -> Iterator[tuple[str, Buckets]]:
    yield "llmdiag_active_session_age_seconds", Buckets(AGE_BOUNDS, [now - held.first for held in sessions])
    yield "llmdiag_active_session_turns", Buckets(TURN_BOUNDS, [held.turns for held in sessions])
    if contexts:
        yield "llmdiag_active_session_context_tokens", Buckets(TOKEN_BOUNDS, contexts)
        if limit:
            ratios = [tokens / limit for tokens in contexts]
            yield "llmdiag_active_session_context_ratio", Buckets(RATIO_BOUNDS, ratios)
