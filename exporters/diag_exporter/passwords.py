"""Checking a password against its bcrypt hash, as Prometheus' web configuration files hold it.

The work is done by the ``bcrypt`` package where it is installed (extra ``[web]``), else by the system's
own ``crypt``; it takes some 50 ms on purpose, so what matched is remembered.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import importlib
import os
import re
import threading
from collections.abc import Callable, Mapping

__all__ = ["BCRYPT", "Passwords", "hasher"]

BCRYPT = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")

# Checked for unknown users: a name must not be told from its answer's time.
_NOBODY = "$2b$10$abcdefghijklmnopqrstuuB4O5hL0vK3Ue7rI0w6Q8gq1bH0tJ3zS"
_REMEMBERED = 100


def hasher() -> Callable[[bytes, bytes], bytes] | None:
    """``hash(password, setting)``, or None where neither bcrypt nor the system's crypt can do it."""
    try:
        module = importlib.import_module("bcrypt")
    except ImportError:
        return _system()
    hashed: Callable[[bytes, bytes], bytes] = module.hashpw
    return hashed


def _system() -> Callable[[bytes, bytes], bytes] | None:
    for name in ("libcrypt.so.1", "libcrypt.so.2", "libc.so"):
        try:
            crypt = ctypes.CDLL(name).crypt
        except (OSError, AttributeError):
            continue
        crypt.restype, crypt.argtypes = ctypes.c_char_p, [ctypes.c_char_p, ctypes.c_char_p]

        def hashed(password: bytes, setting: bytes, crypt: Callable[..., bytes | None] = crypt) -> bytes:
            return crypt(password, setting) or b""

        # glibc before libxcrypt knows no bcrypt and says so with an error or a foreign hash.
        if hashed(b"x", _NOBODY.encode()).startswith(b"$2b$"):
            return hashed
    return None


class Passwords:
    """Who may read the page: names and their bcrypt hashes."""

    def __init__(self, users: Mapping[str, str], hashed: Callable[[bytes, bytes], bytes]) -> None:
        self._users = dict(users)
        self._hashed = hashed
        self._key = os.urandom(32)
        self._known: set[bytes] = set()
        # One at a time: the system's crypt has one buffer, and guessing must not take every core.
        self._lock = threading.Lock()

    def match(self, user: str, password: str) -> bool:
        """Whether ``password`` is that of ``user``."""
        setting = self._users.get(user, _NOBODY)
        secret = password.encode()
        # bcrypt reads 72 bytes and C strings end at a zero: neither may pass for the password before it.
        if b"\0" in secret or len(secret) > 72:
            return False
        mark = hmac.digest(self._key, b"\0".join((user.encode(), setting.encode(), secret)), hashlib.sha256)
        if mark in self._known:
            return True
        with self._lock:
            answer = self._hashed(secret, setting.encode())
        if user not in self._users or not hmac.compare_digest(answer, setting.encode()):
            return False
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known.add(mark)
        return True
