"""TLS and basic auth from a file in the format of Prometheus' exporter toolkit (``web-config.yml``).

Keys this server cannot honour are refused: a file that asks for more protection than is given must
not be taken in silence.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from diag_exporter.passwords import BCRYPT, Passwords, hasher
from diag_exporter.plain_yaml import Value, YamlError, parse
from diag_exporter.settings import SettingsError

__all__ = ["OPEN", "WebConfig", "load"]

_T = TypeVar("_T")

_TLS_KEYS = {
    "cert_file",
    "key_file",
    "client_ca_file",
    "client_auth_type",
    "min_version",
    "max_version",
}
# Headers the toolkit lets one add to every answer.
_HEADERS = {
    "Strict-Transport-Security",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class WebConfig:
    """How the page is protected. ``tls`` None: plain HTTP; ``passwords`` None: open to whoever reaches it."""

    tls: ssl.SSLContext | None = None
    passwords: Passwords | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


OPEN = WebConfig()


def load(path: Path | None) -> WebConfig:
    """Read ``path`` (None: nothing is protected). Raise ``SettingsError`` with one line."""
    if path is None:
        return OPEN
    try:
        known = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"web configuration {path} cannot be read: {error.strerror}") from None
    except (YamlError, UnicodeDecodeError) as error:
        raise SettingsError(f"web configuration {path}: {error}") from None
    _refuse(path, known, {"tls_server_config", "basic_auth_users", "http_server_config"}, "")
    tls = _section(path, known, "tls_server_config")
    users = _section(path, known, "basic_auth_users")
    http = _section(path, known, "http_server_config")
    _refuse(path, http, {"http2", "headers"}, "http_server_config.")
    headers = http.get("headers") or {}
    if not isinstance(headers, dict):
        raise SettingsError(f"web configuration {path}: http_server_config.headers must be a mapping")
    _refuse(path, headers, _HEADERS, "http_server_config.headers.")
    return WebConfig(
        _tls(path, tls) if tls else None,
        _passwords(path, users) if users else None,
        {name: str(value) for name, value in headers.items()},
    )


def _section(path: Path, known: Mapping[str, Value], name: str) -> dict[str, Value]:
    section = known.get(name) or {}
    if not isinstance(section, dict):
        raise SettingsError(f"web configuration {path}: {name} must be a mapping")
    return section


def _refuse(path: Path, known: Mapping[str, Value], allowed: set[str], where: str) -> None:
    for name in known:
        if name not in allowed:
            some = ", ".join(sorted(allowed))
            raise SettingsError(f"web configuration {path}: {where}{name} is not known; there are {some}")


def _tls(path: Path, known: Mapping[str, Value]) -> ssl.SSLContext:
    _refuse(path, known, _TLS_KEYS, "tls_server_config.")
    for needed in ("cert_file", "key_file"):
        if not known.get(needed):
            raise SettingsError(f"web configuration {path}: tls_server_config needs {needed}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _choice(path, known, "min_version", _VERSIONS, "TLS12")
    if known.get("max_version"):
        context.maximum_version = _choice(path, known, "max_version", _VERSIONS, "TLS13")
    context.verify_mode = _choice(path, known, "client_auth_type", _CLIENT_AUTH, "NoClientCert")
    # Paths in the file are relative to the file, as the toolkit has them.
    files = [path.parent / str(known[name]) for name in ("cert_file", "key_file")]
    try:
        context.load_cert_chain(files[0], files[1])
        if known.get("client_ca_file"):
            context.load_verify_locations(path.parent / str(known["client_ca_file"]))
        elif context.verify_mode != ssl.CERT_NONE:
            raise SettingsError(f"web configuration {path}: client_auth_type needs client_ca_file")
    except ssl.SSLError as error:
        reason = str(error.reason or error).replace("_", " ").lower()
        raise SettingsError(f"web configuration {path}: the certificates cannot be used: {reason}") from None
    except OSError as error:
        raise SettingsError(
            f"web configuration {path}: a certificate file cannot be read: {error.strerror}"
        ) from None
    return context


def _choice(path: Path, known: Mapping[str, Value], name: str, choices: Mapping[str, _T], default: str) -> _T:
    value = str(known.get(name) or default)
    if value not in choices:
        some = ", ".join(choices)
        raise SettingsError(f"web configuration {path}: {name} cannot be {value}; choose from {some}")
    return choices[value]


def _passwords(path: Path, users: Mapping[str, Value]) -> Passwords:
    for name, value in users.items():
        matched = BCRYPT.fullmatch(value) if isinstance(value, str) else None
        if matched is None or not 4 <= int(matched[1]) <= 15:
            raise SettingsError(f"web configuration {path}: the password of {name} is not a bcrypt hash")
    hashed = hasher()
    if hashed is None:
        raise SettingsError("basic auth needs bcrypt: install llm-diag[web] (this system's crypt has none)")
    return Passwords({name: str(value) for name, value in users.items()}, hashed)
