"""Read metrics pages: text format 0.0.4 and OpenMetrics, with or without timestamps.

prometheus_client's parsers give up on a page at its first broken line; an incident's page is read
as far as it goes, so lines are parsed one by one here and a bad one is counted and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

__all__ = ["BadLines", "Sample", "looks_like_page", "samples"]

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LINE = re.compile(rf"\s*({_NAME})\s*(\{{)?")
_PAIR = re.compile(rf'\s*(?:({_NAME}[.\w]*)|"((?:[^"\\]|\\.)*)")\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_QUOTED_NAME = re.compile(r'\s*\{\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_UNESCAPED = {"n": "\n", '"': '"', "\\": "\\"}
_NAMED_AT_MOST = 3


@dataclass(slots=True)
class BadLines:
    """Counts lines that could not be used and keeps the first few by name."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, where: str, why: str) -> None:
        """``where`` is a file and line, ``why`` a short reason."""
        self.count += 1
        if len(self.named) < _NAMED_AT_MOST:
            self.named.append(f"{where} ({why})")

    def note(self) -> str:
        """One line for the operator; empty when all was well."""
        if not self.count:
            return ""
        lines = "line" if self.count == 1 else "lines"
        more = ", …" if self.count > len(self.named) else ""
        return f"{self.count} unreadable metrics {lines} left out: {', '.join(self.named)}{more}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a page. ``time``: unix seconds, None where the page gives none."""

    name: str
    labels: dict[str, str]
    value: float
    time: float | None


def samples(
    lines: Iterable[str], where: str, bad: BadLines, *, openmetrics: bool = False
) -> Iterator[Sample]:
    """Yield the samples of a page in order.

    ``openmetrics``: timestamps are seconds, not milliseconds; ``# EOF`` ends the page. ``where``
    names the page in ``bad``. ``…_created`` samples hold unix times, not values, and are passed on
    under their own name, which no engine definition reads.
    """
    for number, line in enumerate(lines, start=1):
        if line.startswith("#"):
            if openmetrics and line.rstrip() == "# EOF":
                return
            continue
        if not line.strip():
            continue
        try:
            yield _sample(line, openmetrics)
        except ValueError as error:
            bad.add(f"{where}:{number}", str(error))


def looks_like_page(text: str) -> bool:
    """Whether ``text`` starts like a metrics page: a comment of it, or a sample."""
    for line in text.splitlines()[:50]:
        if line.startswith(("# HELP ", "# TYPE ", "# UNIT ", "# EOF")):
            return True
        if line.strip() and not line.startswith("#"):
            try:
                _sample(line, openmetrics=False)
            except ValueError:
                return False
            return True
    return False


def _sample(line: str, openmetrics: bool) -> Sample:
    labels: dict[str, str] = {}
    head = _LINE.match(line)
    if head:
        name, at = head.group(1), head.end()
        if head.group(2):
            at = _labels(line, at, labels)
    else:
        quoted = _QUOTED_NAME.match(line)
        if not quoted:
            raise ValueError("no metric name")
        name, at = _unescape(quoted.group(1)), _labels(line, quoted.end(), labels)
    fields = line[at:].split("#", 1)[0].split()
    if not 1 <= len(fields) <= 2:
        raise ValueError("no value" if not fields else "text after the value")
    value = _number(fields[0], "value")
    if len(fields) == 1:
        return Sample(name, labels, value, None)
    stamp = _number(fields[1], "timestamp")
    return Sample(name, labels, value, stamp if openmetrics else stamp / 1000.0)


def _labels(line: str, at: int, labels: dict[str, str]) -> int:
    while True:
        pair = _PAIR.match(line, at)
        if not pair:
            break
        plain, quoted, value = pair.groups()
        labels[plain if plain is not None else _unescape(quoted)] = _unescape(value)
        at = pair.end()
    rest = line[at:].lstrip()
    if not rest.startswith("}"):
        raise ValueError("labels do not end")
    return len(line) - len(rest) + 1


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _UNESCAPED.get(match.group(1), match.group(0)), text)


def _number(text: str, what: str) -> float:
    if "_" in text:
        raise ValueError(f"{what} is not a number")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{what} is not a number") from None
