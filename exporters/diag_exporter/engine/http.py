"""Small, bounded GET requests: an engine in trouble may answer late, for ever, or without end."""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from diag_exporter.engine import split_name

__all__ = ["Address", "EngineError", "Reply", "Unreachable", "get", "parse_address"]

_BODY_BYTES_MAX = 8 << 20
_CHUNK_BYTES = 1 << 16
_NAME_CHARS_MAX = 128


class EngineError(Exception):
    """What was given is no engine's address; one line."""


class Unreachable(Exception):
    """No answer; ``reason`` is one of refused, timeout, broken."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens. ``path``: what stands before ``/v1`` (a gateway's prefix), or "".
    ``called``: the name it was given, or ""."""

    host: str
    port: int
    tls: bool
    path: str
    called: str = ""

    @property
    def name(self) -> str:
        """What its series are labelled with: the given name, else ``host:port``, as Prometheus would call
        the instance if it scraped the engine under the same address."""
        if self.called:
            return self.called
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reply:
    """``seconds``: from connecting to the last byte."""

    status: int
    body: bytes
    seconds: float


def parse_address(text: str) -> Address:
    """Of ``URL`` or ``NAME=URL``. Raises ``EngineError``. A trailing ``/v1`` or ``/metrics`` is taken off."""
    called, url = split_name(text)
    if len(called) > _NAME_CHARS_MAX or not called.isprintable() or called != called.strip():
        raise EngineError(f"an engine's name is at most {_NAME_CHARS_MAX} printable characters: {called!r}")
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise EngineError(f"{url!r} is not an engine's URL, like http://127.0.0.1:8000") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EngineError(f"{url!r} is not an engine's URL, like http://127.0.0.1:8000")
    path = parts.path.rstrip("/").removesuffix("/metrics").removesuffix("/v1")
    tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if tls else 80), tls, path, called)


def get(address: Address, path: str, *, token: str = "", seconds: float = 5.0) -> Reply:
    """``path`` of the engine; raises ``Unreachable`` after ``seconds`` in all.

    No redirects, no proxies from the environment: what answers is what was named.
    """
    began = time.monotonic()
    connection = _connection(address, seconds)
    headers = {"Connection": "close", "User-Agent": "diag-exporter"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.request("GET", address.path + path, headers=headers)
        response = connection.getresponse()
        body = _read(connection, response, began + seconds)
        return Reply(response.status, body, time.monotonic() - began)
    except TimeoutError:
        raise Unreachable("timeout") from None
    except ConnectionRefusedError:
        raise Unreachable("refused") from None
    except (OSError, http.client.HTTPException, ValueError):
        raise Unreachable("broken") from None
    finally:
        connection.close()


def _connection(address: Address, seconds: float) -> http.client.HTTPConnection:
    if address.tls:
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(address.host, address.port, timeout=seconds, context=context)
    return http.client.HTTPConnection(address.host, address.port, timeout=seconds)


def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse, until: float) -> bytes:
    """The body, up to the limit; each piece may take no longer than what is left of the time."""
    pieces: list[bytes] = []
    held = 0
    while held < _BODY_BYTES_MAX:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(left)
        piece = response.read1(_CHUNK_BYTES)
        if not piece:
            break
        pieces.append(piece)
        held += len(piece)
    return b"".join(pieces)
