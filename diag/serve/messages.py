"""The message that goes out with a verdict: one text for chats, the whole of it for programs."""

from __future__ import annotations

from typing import Any

import requests

from diag.model import State, Verdict
from diag.quantities import plain
from diag.serve.store import Incident

__all__ = ["message", "post"]

_RULED_OUT = 5
_LONGEST = 600
_TIMEOUT_SECONDS = 10.0


def message(verdict: Verdict, incidents: list[Incident], base_url: str) -> dict[str, Any]:
    """Slack-compatible ``text``, and beside it what a program wants to know."""
    first = incidents[0]
    link = f"{base_url}/incidents/{first.id}"
    names = sorted({one.alert.name for one in incidents if one.alert.name})
    lead = next((one for one in verdict.assessments if one.id == verdict.leading), None)
    excluded = [one.id for one in verdict.assessments if one.state is State.RULED_OUT and one.id != "unknown"]
    lines = [f"*{_safe(', '.join(names)) or 'alert'}*: {_safe(verdict.summary)}"]
    if lead is not None and lead.id != "unknown":
        safe = next((action.text for action in lead.mitigations if action.safe), "")
        lines.append(f"Do first: {_safe(safe)}" if safe else f"Cause: {lead.id}")
    if excluded:
        more = f" and {len(excluded) - _RULED_OUT} more" if len(excluded) > _RULED_OUT else ""
        lines.append(f"Ruled out: {', '.join(excluded[:_RULED_OUT])}{more}")
    lines.append(link)
    return {
        "text": "\n".join(lines), "leading": verdict.leading, "confidence": lead.confidence if lead else None,
        "state": lead.state.value if lead else None, "summary": verdict.summary, "ruled_out": excluded,
        "alerts": names, "url": link,
    }  # fmt: skip


def _safe(text: str) -> str:
    """Control characters out, and what a chat would read as a link or a mention."""
    short = plain(text)[:_LONGEST]
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def post(url: str, body: dict[str, Any]) -> None:
    """Send it once; raises when it does not arrive."""
    requests.post(url, json=body, timeout=_TIMEOUT_SECONDS, allow_redirects=False).raise_for_status()
