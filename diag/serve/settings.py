"""How the service is set up."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from diag.errors import UsageError

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """``token``: asked of everybody ("" for nobody: only on loopback); ``base_url``: how others reach it;
    ``most_waiting``: questions that may wait before new alerts are asked to come again."""

    host: str
    port: int
    token: str = ""
    base_url: str = ""
    most_bytes: int = 2 * 1024 * 1024
    most_waiting: int = 200
    refresh_seconds: int = 30

    def __post_init__(self) -> None:
        if not self.token and not _is_loopback(self.host):
            raise UsageError(
                f"{self.host} can be reached from elsewhere", hint="give --token-file, or listen on 127.0.0.1"
            )

    @property
    def address(self) -> str:
        """The address in links."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.base_url.rstrip("/") or f"http://{host}:{self.port}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
