"""Facts of engines that no metric carries: limits, versions, capacity, health as seen from beside them.

Every engine is asked by a thread of its own, slowly; a collector hands on what the last round found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diag_exporter.families import Collector

__all__ = ["EngineOptions", "collectors", "split_name"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Whom to ask and how often.

    ``urls``: servers (vLLM, SGLang), each as ``URL`` or ``NAME=URL``. ``logs``: their logs; the first log
    belongs to the first URL, and so on, and its start-up lines tell what the endpoints don't.
    ``token_file``: a file with the API key, read anew for each round. Seconds: of polls of /health, of
    all else, and of one answer.
    """

    urls: Sequence[str] = ()
    logs: Sequence[Path] = ()
    token_file: Path | None = None
    health_seconds: float = 10.0
    facts_seconds: float = 60.0
    time_out: float = 5.0


def split_name(text: str) -> tuple[str, str]:
    """Name and URL of ``NAME=URL``; the name is "" where only a URL is given."""
    name, equals, url = text.partition("=")
    # An equals sign behind the host belongs to the URL.
    return (name, url) if equals and name and not set(name) & set("/?#") else ("", text)


def collectors(options: EngineOptions) -> list[Collector]:
    """Their first ``collect`` starts the threads, ``close`` stops them. Raises ``EngineError`` (one
    line) for what is no URL."""
    from diag_exporter.engine.collector import build

    return build(options)
