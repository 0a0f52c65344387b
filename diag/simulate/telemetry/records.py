"""Requests as somebody wrote them down: the client, or nginx in front of the engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from diag.simulate.observed import Call, Run
from diag.simulate.parts import Record
from diag.simulate.plan import Shown

__all__ = ["records_of"]

_CLIENT_GONE = 499
_STATUS = {"ok": 200, "aborted": _CLIENT_GONE, "error": 502}


def records_of(run: Run) -> tuple[Record, ...]:
    """The lines of the request log; nothing where nobody kept one.

    A client's record stands for every request that was sent, its answer's fields are there once it
    has ended; nginx writes a line when a request ends and knows no tokens.
    """
    shown = run.plan.shown
    if shown.gateway_log:
        ended = [call for call in run.calls if call.closed <= run.plan.seconds and np.isfinite(call.reached)]
        ended.sort(key=lambda call: call.closed)
        return tuple(_nginx_line(call, run.plan.start, shown) for call in ended)
    if not shown.records:
        return ()
    structured = any(max(client.structured_ratio.values) > 0.0 for client in run.plan.clients)
    sent = sorted(
        (call for call in run.calls if 0.0 <= call.sent <= run.plan.seconds), key=lambda call: call.sent
    )
    return tuple(_client_record(call, run, structured=structured) for call in sent)


def _client_record(call: Call, run: Run, *, structured: bool) -> Record:
    shown = run.plan.shown
    record: dict[str, Any] = {"ts": round(run.plan.start + float(call.sent), 3)}
    if shown.session_ids:
        record["session"] = call.session
    record["tenant"] = call.tenant
    if call.replica:
        record["instance"] = call.replica
    record["request_id"] = f"r{call.number:06d}"
    if structured:
        record["structured"] = int(call.structured)
    ended = call.closed <= run.plan.seconds
    if call.answered <= run.plan.seconds:
        record["ttft_seconds"] = round(float(call.answered - call.sent), 4)
    if ended and call.status:
        record["duration_seconds"] = round(float(call.closed - call.sent), 4)
        record["status"] = call.status
    if ended and call.status == "ok":  # usage comes with the end of the answer
        record["prompt_tokens"] = int(call.prompt_tokens)
        record["output_tokens"] = int(call.output_tokens)
        if shown.cached_tokens:
            record["cached_tokens"] = int(call.cached_tokens)
    return record


def _nginx_line(call: Call, start: float, shown: Shown) -> Record:
    """nginx counts every upstream time from the start of the connection to the engine; what a request
    waited before that is in ``request_time`` alone."""
    forwarded = call.reached + call.gateway_seconds  # NaN: no engine was tried
    connected = np.isfinite(call.arrived)
    code = call.http_status or _STATUS.get(call.status, 502)
    code = _CLIENT_GONE if call.status == "aborted" else code
    line = {
        "msec": f"{start + call.closed:.3f}",
        "request_id": f"{call.number:032x}",
        "http_x_tenant_id": call.tenant or "-",
        "request_method": "POST",
        "uri": "/v1/chat/completions",
        "status": str(code),
        "request_completion": "" if call.status == "aborted" else "OK",
        "request_time": f"{call.closed - call.reached:.3f}",
        "upstream_addr": call.replica or "-",
        "upstream_connect_time": _seconds(call.connect_seconds) if connected else "-",
        "upstream_header_time": _seconds(call.answered - forwarded),
        "upstream_response_time": _seconds(call.closed - forwarded),
    }
    if shown.session_ids:
        line["http_x_session_id"] = call.session or "-"
    return line


def _seconds(value: float) -> str:
    return f"{max(value, 0.0):.3f}" if np.isfinite(value) else "-"
