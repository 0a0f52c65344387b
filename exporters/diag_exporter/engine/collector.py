"""What the sampler calls: readings of all pollers, and the engines' logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from diag_exporter.engine import EngineOptions
from diag_exporter.engine.http import EngineError, parse_address
from diag_exporter.engine.poller import Poller
from diag_exporter.engine.series import FAMILIES, engine_rows
from diag_exporter.families import Collector, Group, NoData, Rows
from diag_exporter.sessions.feeds.engine_log import EngineLog
from diag_exporter.sessions.running import EngineLogCollector, Stepper, log_names

__all__ = ["build"]

_STALE_ROUNDS = 6


def build(options: EngineOptions) -> list[Collector]:
    """Collectors for ``options``; none for nothing to ask or follow."""
    addresses = [parse_address(url) for url in options.urls]
    names = [address.name for address in addresses]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise EngineError(f"{twice[0]} is given twice as --engine")
    # A log without a URL of its own goes by its file's name.
    labels = [*names[: len(options.logs)], *log_names(options.logs[len(names) :])]
    logs = [EngineLog(path, label) for path, label in zip(options.logs, labels, strict=True)]
    pollers = [
        Poller(
            address,
            token=_token(options.token_file),
            log=logs[position] if position < len(logs) else None,
            health_seconds=options.health_seconds,
            facts_seconds=options.facts_seconds,
            time_out=options.time_out,
        )
        for position, address in enumerate(addresses)
    ]
    made: list[Collector] = []
    stepper = Stepper(logs)
    if pollers:
        made.append(_EngineCollector(pollers, stepper, options.health_seconds + 6 * options.time_out))
    if logs:
        made.append(EngineLogCollector(logs, stepper.start, stepper.close))
    return made


def _token(path: Path | None) -> Callable[[], str]:
    def read() -> str:
        try:
            return path.read_text("ascii").strip() if path is not None else ""
        except (OSError, ValueError):
            return ""

    return read


class _EngineCollector:
    name = "engine"
    group: Group = "fast"
    families = FAMILIES

    def __init__(self, pollers: Sequence[Poller], stepper: Stepper, round_seconds: float) -> None:
        self._pollers = pollers
        self._stepper = stepper
        self._stale = _STALE_ROUNDS * round_seconds

    def collect(self, now: float) -> Rows:  # noqa: ARG002  # readings bear steady times
        """What the last rounds found; a poller that came to a stop says nothing any more."""
        self._stepper.start()
        moment = time.monotonic()
        readings = {}
        for poller in self._pollers:
            poller.start()
            reading = poller.reading()
            if reading is not None and moment - reading.at <= self._stale:
                readings[poller.address.name] = reading
        if not readings:
            raise NoData
        return engine_rows(readings)

    def close(self) -> None:
        """Stop asking and following."""
        for poller in self._pollers:
            poller.close()
        self._stepper.close()
