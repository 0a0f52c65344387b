"""One streamed chat completion over plain HTTP/1.1, timed as its caller saw it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "Ask", "ask"]

_LONGEST_REQUEST_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Ask:
    """``leave_after_seconds`` closes the connection then, as a client does that loses patience."""

    port: int
    request_id: str
    messages: tuple[dict[str, str], ...]
    answer_tokens: int
    leave_after_seconds: float | None = None


@dataclass(slots=True)
class Answer:
    """What the client saw; ``status`` None while it is open, token counts None when it never ended."""

    sent_unix: float
    status: str | None = None
    ttft_seconds: float | None = None
    duration_seconds: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    text: str = ""


async def ask(request: Ask, answer: Answer) -> None:
    """Fill ``answer`` in place, so that whoever stops the recording still sees the requests under way."""
    started = time.perf_counter()
    limit = _LONGEST_REQUEST_SECONDS if request.leave_after_seconds is None else request.leave_after_seconds
    try:
        async with asyncio.timeout(limit):
            await _stream(request, answer, started)
    except TimeoutError:
        answer.status = "aborted"
    except (OSError, ValueError, asyncio.IncompleteReadError):
        answer.status = "error"
    answer.duration_seconds = time.perf_counter() - started


async def _stream(request: Ask, answer: Answer, started: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", request.port)
    try:
        writer.write(_head_and_body(request))
        await writer.drain()
        status = (await reader.readline()).split()
        if len(status) < 2 or status[1] != b"200":
            raise ValueError("the server refused the request")
        parts: list[str] = []
        finished = False
        async for event in _events(reader):
            choices = event.get("choices") or [{}]
            piece = choices[0].get("delta", {}).get("content") or ""
            if piece and answer.ttft_seconds is None:
                answer.ttft_seconds = time.perf_counter() - started
            parts.append(piece)
            if usage := event.get("usage"):
                _count(answer, usage)
                finished = True
        answer.text = "".join(parts)
        # A killed server closes the stream early: that is no answer, whatever arrived before.
        answer.status = "ok" if finished else "error"
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await writer.wait_closed()


def _count(answer: Answer, usage: dict[str, Any]) -> None:
    answer.prompt_tokens = usage["prompt_tokens"]
    answer.output_tokens = usage["completion_tokens"]
    details = usage.get("prompt_tokens_details") or {}
    answer.cached_tokens = details.get("cached_tokens")


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    # Uvicorn puts each event into a chunk of its own, so no event is cut by a chunk's length line.
    while line := await reader.readline():
        if not line.startswith(b"data: "):
            continue
        data = line[6:].strip()
        if data == b"[DONE]":
            return
        yield json.loads(data)


def _head_and_body(request: Ask) -> bytes:
    body = json.dumps(
        {
            "model": "tiny",
            "messages": request.messages,
            "max_tokens": request.answer_tokens,
            "ignore_eos": True,
            "temperature": 1.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"X-Request-Id: {request.request_id}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
