"""Gateway overlay: nginx in front of the engine takes long to reach it; the engine is as fast as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diag.simulate.parts import Bundle, Record

__all__ = ["gateway_slow"]

_CONNECT_SECONDS = 0.0008
_SLOW_CONNECT_SECONDS = 1.6
_TRANSIT_SECONDS = 0.0015


def gateway_slow(bundle: Bundle, *, onset: float, seed: int = 6) -> Bundle:
    """Request records become lines of an nginx JSON log whose ``upstream_connect_time`` grows at ``onset``.

    nginx writes a line when a request ends, counts every upstream time from the start of the
    connection, and knows no tokens: header time is connect time plus the recording's time to first
    token. Requests that were still open have no line.
    """
    rng = np.random.default_rng(seed)
    lines = [
        _line(row, onset, rng, number)
        for number, row in enumerate(bundle.requests)
        if row.get("duration_seconds") is not None
    ]
    ended = [line for line in lines if float(line["msec"]) <= bundle.window.end]
    made = replace(bundle, requests=tuple(sorted(ended, key=lambda line: float(line["msec"]))))
    label = {
        "causes": ["network_latency"],
        "leading": "network_latency",
        "accept": ["network_latency"],
        "must_not": [],
        "scope": {"link": ["nginx->vllm-0:8000"]},
        "onset": onset,
        "kind": "simulated",
    }
    return made.with_meta(label=label).with_note(
        "the recording's request records were rewritten as an nginx JSON log; from "
        f"{onset:.0f} nginx takes about {_SLOW_CONNECT_SECONDS} s to connect to the engine; the engine's "
        "metrics are the recording's."
    )


def _line(row: Record, onset: float, rng: np.random.Generator, number: int) -> Record:
    start = float(row["ts"])
    usual = _CONNECT_SECONDS * float(rng.uniform(0.7, 1.8))
    connect = _SLOW_CONNECT_SECONDS * float(rng.lognormal(0.0, 0.35)) if start >= onset else usual
    transit = _TRANSIT_SECONDS * float(rng.uniform(0.7, 1.6))
    engine = float(row["duration_seconds"])
    first = row.get("ttft_seconds")
    return {
        "msec": f"{start + transit + connect + engine:.3f}",
        "request_id": row.get("request_id") or f"{number:032x}",
        "http_x_session_id": row.get("session") or "-",
        "request_method": "POST",
        "uri": "/v1/chat/completions",
        "status": "200" if row.get("status") == "ok" else "499",
        "request_completion": "OK" if row.get("status") == "ok" else "",
        "request_time": f"{transit + connect + engine:.3f}",
        "upstream_addr": row.get("instance") or "-",
        "upstream_connect_time": f"{connect:.3f}",
        "upstream_header_time": "-" if first is None else f"{connect + float(first):.3f}",
        "upstream_response_time": f"{connect + engine:.3f}",
    }
