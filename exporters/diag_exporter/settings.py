"""What an operator can set, from flags and from a TOML file that SIGHUP reads again."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from diag_exporter.engine import split_name

__all__ = ["DEFAULT_LISTEN", "Address", "Profile", "Settings", "SettingsError", "address", "merged"]

Profile = Literal["minimal", "default", "full"]

DEFAULT_LISTEN = "127.0.0.1:9877"


class SettingsError(Exception):
    """The exporter cannot run as asked; one line for the operator."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. ``host`` empty: on every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Names are those of the flags and of the file's keys.

    ``on``/``off``: names of collectors. Seconds are intervals of the two groups; ``stale_after`` counts
    intervals. ``gpus``: how many there should be (None: as many as were seen at start). ``own``:
    patterns of processes that are the engine. ``engine``: URLs, or ``NAME=URL``. ``log``: request logs,
    ``engine_log``: logs of the engine itself, ``preset``: how request logs are read, ``log_field``:
    ``FIELD=PATH`` where the plain preset finds a field elsewhere. ``active``: seconds after its last request
    that a session counts as active. ``tenant_header``: empty, and the proxy knows no tenants.
    """

    listen: str = DEFAULT_LISTEN
    web_config: Path | None = None
    profile: Profile = "default"
    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    fast: float = 1.0
    slow: float = 15.0
    stale_after: float = 10.0
    top: int = 10
    gpus: int | None = None
    own: tuple[str, ...] = ()
    engine: tuple[str, ...] = ()
    engine_token: Path | None = None
    log: tuple[Path, ...] = ()
    preset: str = "plain"
    log_field: tuple[str, ...] = ()
    from_start: bool = False
    engine_log: tuple[Path, ...] = ()
    otlp_listen: str | None = None
    session_in_request_id: bool = False
    session_key: Path | None = None
    max_sessions: int = 100_000
    active: float = 900.0
    script: Path | None = None
    proxy_listen: str | None = None
    upstream: str | None = None
    proxy_workers: int = 1
    tenant_header: str = "x-tenant-id"
    include_usage: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)

    def checked(self) -> Settings:
        """Itself. Raise ``SettingsError`` for what cannot be meant."""
        for name in ("fast", "slow"):
            if not getattr(self, name) >= 0.05:
                raise SettingsError(f"--{name} must be at least 0.05 seconds")
        if self.slow < self.fast:
            raise SettingsError("--slow must not be shorter than --fast")
        if not self.stale_after >= 1:
            raise SettingsError("--stale-after must be at least 1 interval")
        if self.profile not in get_args(Profile):
            raise SettingsError(f"--profile is one of {', '.join(get_args(Profile))}, not {self.profile}")
        if not 1 <= self.top <= 100:
            raise SettingsError("--top must be between 1 and 100: every one of them is a series")
        if both := set(self.on) & set(self.off):
            raise SettingsError(f"{', '.join(sorted(both))}: both --on and --off")
        address(self.listen, "--listen")
        for name in ("otlp_listen", "proxy_listen"):
            if value := getattr(self, name):
                address(value, f"--{name.replace('_', '-')}")
        for url in self.engine:
            _http(split_name(url)[1], "--engine")
        self._check_sessions()
        return self

    def _check_sessions(self) -> None:
        if not 1000 <= self.max_sessions <= 10_000_000:
            raise SettingsError("--max-sessions must be between 1000 and 10000000: each takes some 200 bytes")
        if not self.active >= 1:
            raise SettingsError("--active must be at least 1 second")
        if (self.proxy_listen is None) != (self.upstream is None):
            raise SettingsError("--proxy-listen and --upstream belong together")
        if self.upstream is None and (self.include_usage or self.proxy_workers != 1):
            raise SettingsError("--include-usage and --proxy-workers are the proxy's: give --proxy-listen")
        if self.upstream is not None:
            _http(self.upstream, "--upstream")


def address(text: str, flag: str) -> Address:
    """Read ``host:port``, ``:port`` or ``[address]:port``."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        raise SettingsError(f"{flag} is HOST:PORT, for example {DEFAULT_LISTEN}, not {text!r}")
    return Address(bare, int(port))


def merged(flags: Mapping[str, Any], file: Path | None) -> Settings:
    """Settings from ``file`` with ``flags`` (None or empty: not given) over them."""
    known = {} if file is None else _file(file)
    given = {name: value for name, value in flags.items() if value not in (None, (), [])}
    values: dict[str, Any] = {name: _typed(name, value) for name, value in {**known, **given}.items()}
    return replace(Settings(), **values).checked()


def _file(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings {path}: {error}") from None
    names = {one.name for one in fields(Settings)} - {"extra"}
    for name in table:
        if name.replace("-", "_") not in names:
            some = ", ".join(sorted(names))
            raise SettingsError(f"settings {path}: {name} is not known; there are {some}")
    return {name.replace("-", "_"): value for name, value in table.items()}


_PATHS = {"web_config", "session_key", "script", "engine_token"}
_MANY = {"on", "off", "own", "engine", "log_field"}
_MANY_PATHS = {"log", "engine_log"}
_REAL = {"fast", "slow", "stale_after", "active"}
_WHOLE = {"top", "gpus", "max_sessions", "proxy_workers"}
_SWITCHES = {"from_start", "session_in_request_id", "include_usage"}


def _typed(name: str, value: object) -> object:
    """``value`` as its field has it; a TOML file may hold anything."""
    if name in _WHOLE | _REAL:
        kinds = int if name in _WHOLE else int | float
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise SettingsError(f"{name} must be a number, not {value!r}")
        return value
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise SettingsError(f"{name} must be true or false, not {value!r}")
        return value
    if name in _MANY or name in _MANY_PATHS:
        some = [value] if isinstance(value, str | Path) else value
        if not isinstance(some, list | tuple) or not all(isinstance(one, str | Path) for one in some):
            raise SettingsError(f"{name} must be a list of texts, not {value!r}")
        return tuple(Path(one) if name in _MANY_PATHS else str(one) for one in some)
    if not isinstance(value, str | Path):
        raise SettingsError(f"{name} must be a text, not {value!r}")
    return Path(value) if name in _PATHS else str(value)


def _http(url: str, flag: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise SettingsError(f"{flag} is a URL like http://127.0.0.1:8000, not {url!r}")
