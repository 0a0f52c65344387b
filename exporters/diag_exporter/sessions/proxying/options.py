"""What can be set on the proxy, checked once before anything listens."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["ProxyError", "ProxyOptions", "listen_address"]

_LOOPBACK = "127.0.0.1"


class ProxyError(Exception):
    """The proxy cannot run; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """Everything a worker needs. Seconds and bytes; a limit of 0 seconds means none.

    ``upstream``: base URL of the engine or of a gateway before it, without credentials.
    ``listen``: ``HOST:PORT``, ``:PORT`` and ``PORT`` mean loopback; port 0 takes a free one.
    ``instance``: what events call the engine; None: the upstream's URL.
    ``tenant_header``: the request header that names the tenant; empty: tenants stay unknown.
    ``include_usage``: ask streams for their token counts when the client did not, and take the
    chunk that carries them out again. Without it the counts of such streams stay unknown.
    ``headers_seconds``: from the request sent to the answer's status line. An engine answers a
    request that does not stream only when all of it is generated, hence the long default.
    ``idle_seconds``: between two pieces of an answer. ``stall_seconds``: a client that takes nothing.
    ``body_seconds``: to receive a request. ``drain_seconds``: for running answers when stopping.
    ``upstream_keepalive_seconds``: below the engine's own (uvicorn 5 s), or requests race its close.
    ``watch_bytes``: larger request bodies pass unread. ``budget_bytes``: all bodies held for
    reading in one worker; beyond it bodies pass unread too, so memory stays bounded and nothing
    is turned away. ``max_in_flight``: a worker answers 503 above it.
    """

    upstream: str
    listen: str = f"{_LOOPBACK}:8001"
    workers: int = 1
    tenant_header: str = "x-tenant-id"
    instance: str | None = None
    include_usage: bool = False
    connect_seconds: float = 5.0
    headers_seconds: float = 1800.0
    idle_seconds: float = 600.0
    stall_seconds: float = 120.0
    body_seconds: float = 60.0
    drain_seconds: float = 30.0
    client_keepalive_seconds: float = 75.0
    upstream_keepalive_seconds: float = 4.0
    upstream_ca: str | None = None
    watch_bytes: int = 4 * 2**20
    budget_bytes: int = 256 * 2**20
    max_in_flight: int = 10_000

    def checked(self) -> ProxyOptions:
        """Return self, or raise ``ProxyError`` for the first setting that cannot work."""
        listen_address(self.listen)
        _check_upstream(self.upstream)
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and value < 0:
                raise ProxyError(f"{name.replace('_', '-')} is negative: {value}")
        if not 1 <= self.workers <= 64:
            raise ProxyError(f"workers is {self.workers}: from 1 to 64")
        if self.max_in_flight == 0:
            raise ProxyError("max-in-flight is 0: no request could pass")
        if self.upstream_ca is not None and not Path(self.upstream_ca).is_file():
            raise ProxyError(f"there is no file of certificates at {self.upstream_ca}")
        return self


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``[V6]:PORT``, ``:PORT`` or ``PORT``."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or _LOOPBACK
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ProxyError(f"not an address to listen on: {text!r} (like 127.0.0.1:8001)")
    return host, int(port)


def _check_upstream(url: str) -> None:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
        parts = urlsplit("")
    if not named or parts.scheme not in ("http", "https"):
        raise ProxyError(f"not an upstream: {url!r} (like http://127.0.0.1:8000)")
    if parts.username is not None or parts.password is not None:
        # Not repeated: it would end up in a log.
        raise ProxyError("the upstream's URL carries credentials; clients send their own")
    if parts.query or parts.fragment:
        raise ProxyError(f"an upstream has no query and no fragment: {url!r}")
