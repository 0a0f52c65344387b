"""A physical line of a log to the messages on it: prefixes off, glued messages apart, times read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from diag.records.log_clock import Clock, Stamp

__all__ = ["ACCESS", "Message", "header_component", "messages"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HEADER = re.compile(r"^(?:# (\S+)|==> (\S+) <==)\s*$")
_CONTAINER = re.compile(r"^(?:\[pod/([^\]/]+)(?:/[^\]]*)?\]|([A-Za-z0-9][\w.-]{0,80}?)\s*\|)\s?")
_RUNTIME = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d))[ \t](?:(?:stdout|stderr) [FP] )?"
)
_STAMP = re.compile(
    r"(?:\([\w ]+ pid=\d+\) )?(?:"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL) (?P<month>\d\d)-(?P<day>\d\d) "
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,]\d+)?\b"
    r"|(?P<full>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<ranks>(?: [A-Z_]+\d+)*)\]"
    r")"
)
_RANK = re.compile(r"([A-Z_]+)(\d+)")
ACCESS = re.compile(r'"(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) (\S+) HTTP/\d(?:\.\d)?" (\d{3})')
"""One line of uvicorn's access log: method, path, status."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. ``component`` is a container's or pod's name if one stood in front;
    ``ranks`` are SGLang's (``{"TP": 0}``)."""

    stamp: Stamp | None
    text: str
    component: str | None
    ranks: dict[str, int]


def header_component(line: str) -> str | None:
    """The component a heading like ``# vllm-0`` or ``==> vllm-0.log <==`` announces, or None."""
    match = _HEADER.match(line)
    if match is None:
        return None
    name = (match[1] or match[2]).rpartition("/")[2]
    return name.removesuffix(".gz").removesuffix(".log")


def messages(line: str, clock: Clock) -> Iterator[Message]:
    """The messages on one line, each with the time that stands nearest to it."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    component = None
    if match := _CONTAINER.match(line):
        component = match[1] or match[2]
        line = line[match.end() :]
    stamp = None
    if match := _RUNTIME.match(line):
        stamp = clock.leading(match[1])
        line = line[match.end() :]
    if line.startswith("{"):
        stamp, line = _unwrapped(line, stamp, clock)
    yield from _split(line, stamp, component, clock)


def _split(line: str, outer: Stamp | None, component: str | None, clock: Clock) -> Iterator[Message]:
    matches = list(_STAMP.finditer(line))
    if not matches:
        yield Message(outer or clock.leading(line), line, component, {})
        return
    if lead := line[: matches[0].start()].strip():
        yield Message(outer, lead, component, {})
    ends = [match.start() for match in matches[1:]] + [len(line)]
    for match, end in zip(matches, ends, strict=True):
        ranks = {name: int(number) for name, number in _RANK.findall(match["ranks"] or "")}
        own = outer if outer is not None and outer.zoned else _own(match, clock)
        yield Message(own, line[match.end() : end].rstrip(), component, ranks)


def _own(match: re.Match[str], clock: Clock) -> Stamp | None:
    if match["full"]:
        return clock.leading(match["full"])
    month, day, hour, minute, second = (
        int(match[name]) for name in ("month", "day", "hour", "minute", "second")
    )
    return clock.yearless(month, day, hour, minute, second)


def _unwrapped(line: str, stamp: Stamp | None, clock: Clock) -> tuple[Stamp | None, str]:
    """Docker's json-file lines and JSON formatters: the message inside, and its time."""
    try:
        held = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return stamp, line
    if not isinstance(held, dict):
        return stamp, line
    text = next((held[key] for key in ("log", "message", "msg") if isinstance(held.get(key), str)), None)
    time = next(
        (held[key] for key in ("time", "timestamp", "asctime", "ts") if isinstance(held.get(key), str)), ""
    )
    return clock.leading(time) or stamp, line if text is None else text.rstrip("\n")
