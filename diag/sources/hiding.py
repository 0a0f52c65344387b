"""Take out of a bundle what must not travel: host names (on request), prompts and secrets (always)."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping

from diag.sources.naming import host_of

__all__ = ["HostNames", "without_secrets"]

_HOST_LABELS = frozenset(
    (
        "instance", "exported_instance", "node", "nodename", "hostname", "Hostname", "host", "pod",
        "exported_pod", "kubernetes_node", "kubernetes_pod_name", "server", "exported_node",
    )
)  # fmt: skip
_PUBLIC = frozenset(("localhost", "127.0.0.1", "::1", "0.0.0.0", ""))

# Quoted text as Python prints it, escapes included.
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_SAID = re.compile(
    rf"\b(prompt|output|messages|content|prompt_token_ids)(['\"]?\s*[:=]\s*)({_QUOTED}|\[[^\]]*\])"
)
_NAMED_SECRET = re.compile(
    r"""(?i)((?:['"]?\b(?:api[_-]?keys?|[\w-]*token|password|passwd|secret|authorization)['"]?)\s*[:=]\s*)"""
    rf"""({_QUOTED}|\[[^\]]*['"][^\]]*\]|(?:bearer\s+|basic\s+)?[^\s,;&}}\])'"\d][^\s,;&}}\])'"]*)"""
)
_OPTION_SECRET = re.compile(r"(?i)(--(?:api-key|hf-token|[\w-]*password|[\w-]*secret)[ =])\S+")
_BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}")
_KNOWN_SHAPES = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,})")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@'\"]+@")
_REMOVED = "[removed]"


class HostNames:
    """Hashes host names, the same name always to the same hash within one bundle.

    ``salt`` makes hashes of different bundles differ; drawn at random unless given. Names are
    learnt from labels (``learn``) and then replaced wherever they stand in text."""

    def __init__(self, salt: bytes | None = None) -> None:
        self._salt = salt if salt is not None else secrets.token_bytes(16)
        self._known: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn(self, labels: Mapping[str, str]) -> None:
        """Remember the host names in ``labels``."""
        for name, value in labels.items():
            if name in _HOST_LABELS:
                self._hashed(host_of(value))

    def learn_all(self, addresses: Iterable[str]) -> None:
        """Remember the host parts of ``addresses``."""
        for one in addresses:
            self._hashed(host_of(str(one)))

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """``labels`` with host parts hashed; ports stay."""
        return {
            name: value.replace(host_of(value), self._hashed(host_of(value)))
            if name in _HOST_LABELS
            else value
            for name, value in labels.items()
        }

    def name(self, value: str) -> str:
        """One instance, node or pod name, hashed; its port stays."""
        return value.replace(host_of(value), self._hashed(host_of(value)))

    def text(self, line: str) -> str:
        """``line`` with every learnt name hashed."""
        if self._pattern is None:
            longest_first = sorted(self._known, key=lambda name: (-len(name), name))
            self._pattern = re.compile(
                "|".join(rf"(?<![\w.-]){re.escape(one)}(?![\w-])" for one in longest_first) or r"(?!)"
            )
        return self._pattern.sub(lambda match: self._known[match.group(0)], line)

    def _hashed(self, host: str) -> str:
        if host in _PUBLIC:
            return host
        if host not in self._known:
            digest = hashlib.blake2b(host.encode(), key=self._salt[:64], digest_size=5).hexdigest()
            self._known[host] = f"host-{digest}"
            self._pattern = None
        return self._known[host]


def without_secrets(lines: Iterable[str]) -> Iterator[str]:
    """Log lines without prompt or answer text, keys, tokens and passwords."""
    for line in lines:
        line = _SAID.sub(rf"\1\2'{_REMOVED}'", line)
        line = _OPTION_SECRET.sub(rf"\1{_REMOVED}", line)
        line = _NAMED_SECRET.sub(rf"\1'{_REMOVED}'", line)
        line = _BEARER.sub(rf"\1{_REMOVED}", line)
        line = _KNOWN_SHAPES.sub(_REMOVED, line)
        yield _USERINFO.sub(rf"\1{_REMOVED}@", line)
