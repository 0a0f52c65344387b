"""Which session a request belongs to, as a keyed hash: first hit wins, and which one it was is told.

The key lives in a file that only its owner can read and is renewed from time to time, so that a hash
can neither be turned back into a name nor followed for ever. After a renewal every session looks new once.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

__all__ = ["Identifier", "IdentityError", "Key", "load_key", "new_key"]

_KEY_BYTES = 32
_ROTATE_SECONDS = 30 * 86400.0
_PROMPT_HEAD_CHARS = 1024
_ID_CHARS_MAX = 512


class IdentityError(Exception):
    """The key file cannot be used; the message says why and what to do, in one line."""


@dataclass(frozen=True, slots=True)
class Key:
    """A secret and when it was made (unix seconds)."""

    secret: bytes
    created: float

    def __repr__(self) -> str:
        return f"Key(created={self.created})"


def new_key(now: float | None = None) -> Key:
    """A key that lives as long as this process."""
    # In milliseconds, as its file will have it.
    return Key(secrets.token_bytes(_KEY_BYTES), round(time.time() if now is None else now, 3))


def load_key(path: Path, *, now: float | None = None, rotate_seconds: float = _ROTATE_SECONDS) -> Key:
    """The key in ``path``; made there (mode 0600) when there is none or it is too old.

    Raises ``IdentityError`` when others could read the file or it holds something else.
    """
    moment = time.time() if now is None else now
    try:
        key = _read(path)
        if key is None:
            return _write(path, new_key(moment), replace=False)
        # A key from the future (a clock set back) counts as fresh: sessions are worth more than rotation.
        return _write(path, new_key(moment), replace=True) if moment - key.created > rotate_seconds else key
    except OSError as error:
        reason = error.strerror or str(error)
        raise IdentityError(f"cannot use the session key file {path}: {reason}; give another path") from None


def _read(path: Path) -> Key | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise IdentityError(f"the session key file {path} is not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        if mode & 0o077:
            raise IdentityError(f"others can read the session key file {path}: chmod 600 it, or delete it")
        words = file.read(4096).split()
    try:
        created, secret = float(words[0]), bytes.fromhex(words[1].decode("ascii"))
    except (IndexError, ValueError):
        raise IdentityError(f"{path} is not a session key file: delete it, and one is made") from None
    if len(secret) != _KEY_BYTES:
        raise IdentityError(f"{path} is not a session key file: delete it, and one is made")
    return Key(secret, created)


def _write(path: Path, key: Key, *, replace: bool) -> Key:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{key.created:.3f} {key.secret.hex()}\n".encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(beside, path)
            return key
        try:
            os.link(beside, path)
        except FileExistsError:  # another exporter was first: its key counts
            return _read(path) or key
        return key
    finally:
        beside.unlink(missing_ok=True)


class Identifier:
    """Turns names into keyed hashes. One per exporter, so that all feeds agree."""

    def __init__(self, key: Key) -> None:
        self.take(key)

    def take(self, key: Key) -> None:
        """Use ``key`` from now on."""
        self.key = key
        self._keyed = blake2b(digest_size=8, key=key.secret)

    @property
    def keyed(self) -> blake2b:
        """The keyed hash at its start: to be copied, never updated."""
        return self._keyed

    def hash(self, name: str) -> int:
        """64 bits of ``name`` under the key (0.8 µs)."""
        state = self._keyed.copy()
        state.update(name.encode("utf-8", "surrogatepass"))
        return int.from_bytes(state.digest(), "big")

    def identify(
        self,
        headers: Mapping[str, str],
        body: Mapping[str, object],
        *,
        tenant: str = "",
        fingerprint: bool = True,
    ) -> tuple[int | None, str]:
        """The session of a request and which source told it; ``(None, "none")`` when nothing does.

        ``headers``: names in lower case. ``body``: the parsed request. The fingerprint (model, tenant,
        system text, first user message) is the last resort and a guess.
        """
        for source, name in _named(headers, body):
            return self.hash(name), source
        parts = _opening(body) if fingerprint else ()
        if not parts:
            return None, "none"
        state = self._keyed.copy()
        for part in (str(body.get("model") or ""), tenant, *parts):
            data = part.encode("utf-8", "surrogatepass")
            state.update(len(data).to_bytes(8, "big"))  # so that parts cannot run into each other
            state.update(data)
        return int.from_bytes(state.digest(), "big"), "fingerprint"


def _named(headers: Mapping[str, str], body: Mapping[str, object]) -> list[tuple[str, str]]:
    """At most one: the first source that says something."""
    metadata = body.get("metadata")
    inner = metadata.get("session_id") if isinstance(metadata, Mapping) else None
    for source, value in (
        ("x-session-id", headers.get("x-session-id")),
        ("x-session-affinity", headers.get("x-session-affinity")),
        ("session_id", body.get("session_id")),
        ("metadata.session_id", inner),
        ("prompt_cache_key", body.get("prompt_cache_key")),
        ("user", body.get("user") or body.get("safety_identifier")),
    ):
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value and len(value) <= _ID_CHARS_MAX:
            return [(source, value)]
    return []


def _opening(body: Mapping[str, object]) -> tuple[str, ...]:
    """The system text and the first user message, or a plain prompt's head; empty when there is none."""
    messages = body.get("messages", body.get("input"))
    if isinstance(messages, list):
        system = _text(body.get("instructions"))
        for message in messages:
            if not isinstance(message, Mapping):
                continue
            role = message.get("role")
            if role in ("system", "developer"):
                system += _text(message.get("content"))
            elif role == "user":
                return (system, _text(message.get("content")))
        return ()
    prompt = messages if isinstance(messages, str) else body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return (_text(body.get("instructions")), prompt[:_PROMPT_HEAD_CHARS])
    return ()


def _text(content: object) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else json.dumps(content, sort_keys=True, default=str)
