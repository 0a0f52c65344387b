"""Packs a few of the recorded incidents into the package, so that ``diag demo`` needs nothing else.

The recordings in the tests are the source; the archives are copies of them, byte for byte inside.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SHIPPED", "Shipped", "index_text", "members", "pack", "read_members"]


@dataclass(frozen=True, slots=True)
class Shipped:
    """One incident of the demo: the name a user types, the recording it is, one line about it."""

    name: str
    recording: str
    text: str

    @property
    def file(self) -> str:
        """Name of the archive."""
        return f"{self.name}.tar.gz"


SHIPPED: tuple[Shipped, ...] = (
    Shipped(
        "context_growth",
        "context_growth_reference",
        "six chats resend their whole growing history, prefix caching is off (vLLM 0.32)",
    ),
    Shipped(
        "head_of_line_blocking",
        "head_of_line_blocking",
        "a 24,000-token prompt every ten seconds, chunked prefill is off",
    ),
    Shipped("healthy", "healthy_a", "nothing is wrong; a harmless deploy in the middle"),
    Shipped(
        "kv_cache_exhaustion",
        "kv_cache_exhaustion",
        "a restart with 66 instead of 8,800 KV blocks, the same traffic",
    ),
    Shipped("load_burst", "load_burst", "seven times the request rate at equal lengths"),
    Shipped(
        "network_latency",
        "network_latency",
        "a relay in front of the engine delays every byte by half a second and more",
    ),
    Shipped(
        "prefix_cache_broken",
        "prefix_cache_broken",
        "a changing counter in front of a long shared system prompt",
    ),
)
"""What ships, by name."""


def members(recording: Path) -> dict[str, bytes]:
    """The files of a recording, by their path in it, sorted."""
    files = sorted(path for path in recording.rglob("*") if path.is_file())
    return {path.relative_to(recording).as_posix(): path.read_bytes() for path in files}


def pack(folder: str, files: dict[str, bytes]) -> bytes:
    """A tar.gz with ``files`` under ``folder``; the same input gives the same bytes.

    Times, owners and modes are fixed, since the defaults would change the archive at every checkout.
    """
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            info.mode = 0o644
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), compresslevel=9, mtime=0)


def read_members(archive: bytes) -> dict[str, bytes]:
    """The files in an archive made by ``pack``, without the leading folder."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for info in tar:
            stream = tar.extractfile(info)
            if stream is not None:
                found[info.name.partition("/")[2]] = stream.read()
    return found


def index_text() -> str:
    """The table of contents of the shipped incidents, TOML."""
    lines = ["# Generated from diag/assets/incidents.py by `make generate`; do not edit."]
    for item in SHIPPED:
        lines += [
            "",
            "[[incident]]",
            f'name = "{item.name}"',
            f'description = "{item.text}"',
            f'file = "{item.file}"',
        ]
    return "\n".join(lines) + "\n"
