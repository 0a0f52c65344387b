"""Which collectors run: parts of the exporter put together from settings.

A part has a sampling thread of its own, so that an engine that takes its time to answer delays no GPU
reading and a driver that hangs stops no request log. Parts are imported only when asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from ssl import CERT_REQUIRED
from typing import TYPE_CHECKING, cast

from diag_exporter.families import Collector, Family, Group, Rows
from diag_exporter.serve import Exporter, Server, give_up
from diag_exporter.settings import Settings, SettingsError, address
from diag_exporter.snapshot import Sampler
from diag_exporter.webconfig import load

if TYPE_CHECKING:
    from diag_exporter.sessions import SessionOptions
    from diag_exporter.sessions.running import Sessions

__all__ = ["PARTS", "Running", "build", "chosen", "wanted"]

_LOG = logging.getLogger("diag_exporter")


def _gpu(settings: Settings) -> Sequence[Collector]:
    from diag_exporter.gpu import MINIMAL, GpuOptions, collectors

    # --on asks for a topic whatever the profile: everything is made, what is not wanted is left out.
    profile = "full" if settings.on else settings.profile
    try:
        options = GpuOptions(settings.own, settings.top, settings.gpus, profile, on_restart=give_up)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    wanted = MINIMAL | set(settings.on) if settings.profile == "minimal" else None
    return [one for one in collectors(options) if wanted is None or one.name in wanted]


def _engine(settings: Settings) -> Sequence[Collector]:
    from diag_exporter.engine import EngineOptions, collectors
    from diag_exporter.engine.http import EngineError

    token = settings.engine_token
    try:
        if token is not None:
            # Read anew for each round; at start it is only made sure that it can be.
            token.open("rb").close()
    except OSError as error:
        raise SettingsError(f"--engine-token {token} cannot be read: {error.strerror}") from None
    try:
        return collectors(EngineOptions(settings.engine, settings.engine_log, token_file=token))
    except EngineError as error:
        raise SettingsError(str(error)) from None


def _session_options(settings: Settings) -> SessionOptions:
    from diag_exporter.sessions import SessionOptions
    from diag_exporter.sessions.feeds.json_log import parse_fields

    where = address(settings.otlp_listen, "--otlp-listen") if settings.otlp_listen else None
    return SessionOptions(
        logs=settings.log,
        preset=settings.preset,
        fields=parse_fields(",".join(settings.log_field)),
        from_start=settings.from_start,
        otlp_listen=None if where is None else (where.host, where.port),
        session_in_request_id=settings.session_in_request_id,
        proxied=settings.proxy_listen is not None,
        # The engine part follows these itself when it knows the engine they belong to.
        engine_logs=() if settings.engine else settings.engine_log,
        key_file=settings.session_key,
        sessions=settings.max_sessions,
        tenants=settings.top,
        active_seconds=settings.active,
    )


def _sessions(settings: Settings) -> Sequence[Collector]:
    from diag_exporter.sessions import collectors, open_sessions
    from diag_exporter.sessions.feeds.state import FeedError
    from diag_exporter.sessions.identity import IdentityError

    try:
        options = _session_options(settings)
        sessions = open_sessions(options)
    except (FeedError, IdentityError, ValueError) as error:
        raise SettingsError(str(error)) from None
    made = collectors(options, sessions)
    if settings.upstream is not None and settings.proxy_listen is not None:
        try:
            made.append(_proxied(settings.upstream, settings.proxy_listen, settings, sessions))
        except SettingsError:
            sessions.close()
            raise
    return made


def _proxied(upstream: str, listen: str, settings: Settings, sessions: Sessions) -> Collector:
    from diag_exporter.sessions.proxy import ProxyCollector, ProxyError, ProxyOptions, start_proxy

    options = ProxyOptions(
        upstream=upstream,
        listen=listen,
        workers=settings.proxy_workers,
        tenant_header=settings.tenant_header,
        include_usage=settings.include_usage,
    )
    try:
        running = start_proxy(options, sessions.sink, sessions.key)
    except ProxyError as error:
        raise SettingsError(str(error)) from None
    sessions.on_key.append(running.take)
    return _Ending(cast("Collector", ProxyCollector(running)), running.stop)


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


class _Wrapped:
    """A collector with something done differently."""

    def __init__(self, inner: Collector, families: tuple[Family, ...]) -> None:
        self.name: str = inner.name
        self.group: Group = inner.group
        self.families = families
        self._inner = inner

    def collect(self, now: float) -> Rows:
        return self._inner.collect(now)

    def close(self) -> None:
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()


class _Trimmed(_Wrapped):
    """Without the families that this profile leaves out."""

    def collect(self, now: float) -> Rows:
        kept = {family.name for family in self.families}
        return {name: some for name, some in self._inner.collect(now).items() if name in kept}


class _Ending(_Wrapped):
    """With something that has to end when it does."""

    def __init__(self, inner: Collector, end: Callable[[], object]) -> None:
        super().__init__(inner, inner.families)
        self._end = end

    def close(self) -> None:
        super().close()
        self._end()


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


def build(parts: Sequence[str], settings: Settings, *, every: bool = True) -> dict[str, Sampler]:
    """A sampler a part, not started. Raise ``SettingsError`` for a collector that none of ``parts`` has,
    unless they are not ``every`` part that runs."""
    made = {part: list(PARTS[part](settings)) for part in parts}
    names = [collector.name for some in made.values() for collector in some]
    unknown = sorted({*settings.on, *settings.off} - set(names))
    if unknown and every:
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


def wanted(parts: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """Those of ``parts`` that have something to read. One that was asked for alone must have."""
    missing = {
        "engine": () if settings.engine else ("--engine URL",),
        "sessions": ()
        if settings.log
        or settings.otlp_listen
        or settings.upstream
        or (settings.engine_log and not settings.engine)
        else ("--log FILE", "--otlp-listen HOST:PORT", "--proxy-listen with --upstream"),
    }
    kept = tuple(part for part in parts if not missing.get(part))
    if not kept:
        ways = " or ".join(way for part in parts for way in missing.get(part, ()))
        raise SettingsError(f"nothing to read: give {ways}")
    return kept


_PACE = ("profile", "on", "off", "fast", "slow", "stale_after")
_READ_BY: Mapping[str, tuple[str, ...]] = {
    "gpu": ("top", "gpus", "own"),
    "engine": ("engine", "engine_log", "engine_token"),
    "sessions": (
        "log", "preset", "log_field", "from_start", "engine", "engine_log", "otlp_listen",
        "session_in_request_id", "session_key", "max_sessions", "active", "proxy_listen", "upstream",
        "proxy_workers", "tenant_header", "include_usage", "top",
    ),
    "demo": ("script",),
}  # fmt: skip


def _differs(part: str, old: Settings, new: Settings) -> bool:
    return any(getattr(old, name) != getattr(new, name) for name in (*_PACE, *_READ_BY[part]))


def _hangs(sampler: Sampler) -> bool:
    return any(health.wedged for health in sampler.snapshot().health.values())


class Running:
    """An exporter that listens and samples, and can take other settings on."""

    def __init__(self, parts: Sequence[str], settings: Settings) -> None:
        """Raise ``SettingsError`` when the address is taken or a file cannot be read; then nothing runs."""
        self._parts = tuple(parts)
        self._settings = settings
        exporter = Exporter({}, load(settings.web_config))
        # Listen first: a second exporter on the port must touch no driver and open no log.
        self.server = Server(address(settings.listen, "--listen"), exporter)
        try:
            exporter.samplers.update(build(wanted(parts, settings), settings))
        except BaseException:
            self.server.server_close()
            raise
        for sampler in exporter.samplers.values():
            sampler.start()

    @property
    def parts(self) -> tuple[str, ...]:
        """What runs."""
        return tuple(self.server.exporter.samplers)

    @property
    def guarded(self) -> bool:
        """Whether only this machine, or who has a password or a certificate, can read the page."""
        host, web = str(self.server.server_address[0]), self.server.exporter.web
        asks = web.passwords is not None or (web.tls is not None and web.tls.verify_mode is CERT_REQUIRED)
        return asks or ip_address(host).is_loopback

    def reload(self, settings: Settings) -> None:
        """Read certificates and users again, and build anew those parts whose settings changed.

        Raise ``SettingsError`` when the new settings cannot be; the old ones then stay in force."""
        old, exporter = self._settings, self.server.exporter
        if settings.listen != old.listen:
            raise SettingsError("another --listen needs a restart")
        parts = wanted(self._parts, settings)
        exporter.web = load(settings.web_config)
        changed = [part for part in parts if part not in exporter.samplers or _differs(part, old, settings)]
        gone = [part for part in exporter.samplers if part not in parts]
        before = {part: exporter.samplers[part] for part in (*changed, *gone) if part in exporter.samplers}
        # Two samplers must not read one driver, follow one log or listen on one port at a time.
        hanging = [part for part, sampler in before.items() if _hangs(sampler)]
        if hanging or not all(sampler.stop() for sampler in before.values()):
            raise SettingsError(f"a call of {', '.join(hanging) or 'a part'} hangs; restart to take them")
        try:
            made = build(changed, settings, every=len(changed) == len(parts))
        except SettingsError:
            made, gone = build(tuple(before), old, every=False), []
            self._begin(made, gone)
            raise
        self._begin(made, gone)
        self._settings = settings
        _LOG.info("settings read again; built anew: %s", ", ".join(made) or "nothing")

    def _begin(self, made: Mapping[str, Sampler], gone: Sequence[str]) -> None:
        samplers = {name: one for name, one in self.server.exporter.samplers.items() if name not in gone}
        for sampler in made.values():
            sampler.start()
        # One assignment: a scrape sees the old parts or the new ones.
        self.server.exporter.samplers = {**samplers, **made}
