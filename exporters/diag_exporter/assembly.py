"""Which collectors run: parts of the exporter put together from settings.

A part has a sampling thread of its own, so that an engine that takes its time to answer delays no GPU
reading and a driver that hangs stops no request log. Parts are imported only when asked for.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from diag_exporter.families import Collector, Family, Group, Rows
from diag_exporter.serve import Exporter, Server
from diag_exporter.settings import Settings, SettingsError, address
from diag_exporter.snapshot import Sampler
from diag_exporter.webconfig import load

__all__ = ["PARTS", "Running", "build", "chosen"]

_LOG = logging.getLogger("diag_exporter")


def _gpu(settings: Settings) -> Sequence[Collector]:
    from diag_exporter.gpu import MINIMAL, GpuOptions, collectors

    # --on asks for a topic whatever the profile: everything is made, what is not wanted is left out.
    profile = "full" if settings.on else settings.profile
    try:
        options = GpuOptions(settings.own, settings.top, settings.gpus, profile, on_restart=_restart)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    wanted = MINIMAL | set(settings.on) if settings.profile == "minimal" else None
    return [one for one in collectors(options) if wanted is None or one.name in wanted]


def _restart(why: str) -> None:
    """Only a new process can go on: end this one, and let the supervisor start it again."""
    _LOG.error("%s", why)
    os.kill(os.getpid(), signal.SIGTERM)


def _engine(settings: Settings) -> Sequence[Collector]:
    from diag_exporter.engine import EngineOptions, collectors

    return collectors(EngineOptions(urls=settings.engine, logs=settings.engine_log))


def _sessions(settings: Settings) -> Sequence[Collector]:
    from diag_exporter.sessions import SessionOptions, collectors

    return collectors(SessionOptions(logs=settings.log, engine_logs=settings.engine_log))


def _demo(settings: Settings) -> Sequence[Collector]:
    from diag_exporter.demo import collectors

    return collectors(settings.script)


PARTS: Mapping[str, Callable[[Settings], Sequence[Collector]]] = {
    "gpu": _gpu,
    "engine": _engine,
    "sessions": _sessions,
    "demo": _demo,
}
"""The parts by name, each with what makes its collectors from settings."""


class _Trimmed:
    """A collector without the families that this profile leaves out."""

    def __init__(self, inner: Collector, families: tuple[Family, ...]) -> None:
        self.name: str = inner.name
        self.group: Group = inner.group
        self.families = families
        self._inner = inner
        self._kept = {family.name for family in families}

    def collect(self, now: float) -> Rows:
        return {name: some for name, some in self._inner.collect(now).items() if name in self._kept}

    def close(self) -> None:
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()


def chosen(collectors: Sequence[Collector], settings: Settings) -> list[Collector]:
    """Those that are on, without what the profile leaves out: full has everything, the others only
    families marked as default; ``--on NAME`` brings a collector back whole."""
    result: list[Collector] = []
    for collector in collectors:
        if collector.name in settings.off:
            continue
        kept = tuple(family for family in collector.families if family.default)
        whole = settings.profile == "full" or collector.name in settings.on
        if whole or len(kept) == len(collector.families):
            result.append(collector)
        elif kept:
            result.append(_Trimmed(collector, kept))
    return result


def build(parts: Sequence[str], settings: Settings) -> dict[str, Sampler]:
    """A sampler a part, not started. Raise ``SettingsError`` for a collector nobody knows."""
    made = {part: list(PARTS[part](settings)) for part in parts}
    names = [collector.name for some in made.values() for collector in some]
    unknown = sorted({*settings.on, *settings.off} - set(names))
    if unknown:
        raise SettingsError(
            f"no collector is called {', '.join(unknown)}; there are {', '.join(sorted(names)) or 'none'}"
        )
    return {
        part: Sampler(
            chosen(some, settings),
            fast_seconds=settings.fast,
            slow_seconds=settings.slow,
            stale_after=settings.stale_after,
            clock=time.time,
            name=part,
        )
        for part, some in made.items()
    }


class Running:
    """An exporter that listens and samples, and can take other settings on."""

    def __init__(self, parts: Sequence[str], settings: Settings) -> None:
        """Raise ``SettingsError`` when the address is taken or a file cannot be read; then nothing runs."""
        self._parts = tuple(parts)
        self._settings = settings
        web = load(settings.web_config)
        samplers = build(parts, settings)
        # Listen first: a second exporter on the port must not have touched the driver.
        self.server = Server(address(settings.listen, "--listen"), Exporter(samplers, web))
        for sampler in samplers.values():
            sampler.start()

    def reload(self, settings: Settings) -> None:
        """Read certificates and users again, and build anew the parts when anything else changed.

        Raise ``SettingsError`` when the new settings cannot be; the old ones then stay in force."""
        web = load(settings.web_config)
        if settings.listen != self._settings.listen:
            raise SettingsError("another --listen needs a restart")
        exporter = self.server.exporter
        exporter.web = web
        if settings != self._settings:
            samplers = build(self._parts, settings)
            for part, sampler in samplers.items():
                # Two samplers must not read one driver or one log at a time.
                exporter.samplers[part].stop()
                sampler.start()
                exporter.samplers[part] = sampler
            self._settings = settings
        _LOG.info("settings read again")
