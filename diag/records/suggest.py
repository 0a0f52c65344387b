"""What a stranger's request log might mean: a mapping to try, from the names of its fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["field_paths", "suggest_mapping"]

_DEPTH_MAX = 4

# Names in lower case without separators, likeliest first.
_LIKELY: Mapping[str, tuple[str, ...]] = {
    "ts": (
        "ts", "arrival", "arrivaltime", "receivedat", "starttime", "startedat", "start", "requesttimestamp",
        "timestamp", "time", "createdat", "created", "datetime", "msec", "timeiso8601",
    ),
    "session": ("session", "sessionid", "conversationid", "chatid", "threadid", "xsessionid"),
    "tenant": ("tenant", "tenantid", "teamid", "team", "orgid", "organization", "customer", "user", "userid"),
    "model": ("model", "modelname", "servedmodel"),
    "instance": ("instance", "upstreamaddr", "backend", "upstream", "apibase", "endpoint", "pod"),
    "request_id": ("requestid", "xrequestid", "reqid", "rid", "id", "traceid"),
    "prompt_tokens": (
        "prompttokens", "inputtokens", "promptlen", "prompttokencount", "tokensin", "numprompttokens",
    ),
    "cached_tokens": ("cachedtokens", "cachereadinputtokens", "cachedinputtokens"),
    "output_tokens": ("outputtokens", "completiontokens", "generatedtokens", "tokensout", "generationtokens"),
    "queue_seconds": ("queueseconds", "queuetime", "timeinqueue", "queuems", "queuetimems"),
    "ttft_seconds": (
        "ttftseconds", "ttft", "timetofirsttoken", "firsttokenlatency", "ttftms", "timetofirsttokenms",
    ),
    "duration_seconds": (
        "durationseconds", "duration", "latency", "e2elatency", "requesttime", "responsetime", "elapsed",
        "durationms", "latencyms", "elapsedms", "totaltime", "responsetimems",
    ),
    "status": ("status", "statuscode", "httpstatus", "responsestatus"),
}  # fmt: skip


def field_paths(objects: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """The dotted paths of all leaves, in order of first sight."""
    found: dict[str, None] = {}
    for item in objects:
        _collect(item, "", found, 1)
    return tuple(found)


def _collect(item: Mapping[str, object], prefix: str, found: dict[str, None], depth: int) -> None:
    for key, value in item.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < _DEPTH_MAX:
            _collect(value, f"{path}.", found, depth + 1)
        else:
            found[path] = None


def suggest_mapping(paths: Sequence[str]) -> str | None:
    """``column=path,…`` for ``--requests-map``; None when no path looks like an arrival time."""
    plain = {path: re.sub(r"[^a-z0-9]", "", path.rpartition(".")[2].lower()) for path in paths}
    pairs: dict[str, str] = {}
    for column, names in _LIKELY.items():
        matches = (path for name in names for path in paths if plain[path] == name)
        best = next((path for path in matches if path not in pairs.values()), None)
        if best is not None:
            pairs[column] = best
    if "ts" not in pairs:
        return None
    return ",".join(f"{column}={path}" for column, path in pairs.items())
