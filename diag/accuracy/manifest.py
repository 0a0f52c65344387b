"""The corpus as a list of seeds and hashes: small enough to commit, exact enough to remake every bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from diag.accuracy.corpus import Filled, Spec
from diag.errors import DiagError

__all__ = ["Listed", "Manifest", "corpus_hash", "listed", "read_manifest", "shipped", "write_manifest"]

_SCHEMA = "diag.corpus/1"


class Listed(msgspec.Struct, frozen=True):
    """One family: its cases, and how many of each scenario were made and dropped for want of a symptom."""

    cases: tuple[Spec, ...]
    dropped: dict[str, int] = {}


class Manifest(msgspec.Struct, frozen=True):
    """All families by name."""

    families: dict[str, Listed]
    schema: str = _SCHEMA


def shipped() -> Path:
    """Where the committed manifest lies."""
    return Path(str(files("diag.accuracy") / "manifest.json"))


def read_manifest(path: Path | None = None) -> Manifest:
    """The manifest at ``path`` (default: the committed one).

    Raises:
        DiagError: it is not there, or not as agreed.
    """
    path = path or shipped()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError:
        raise DiagError(
            f"there is no manifest at {path}", hint="python -m bench.corpus --write-manifest writes one"
        ) from None
    except msgspec.MsgspecError as error:
        raise DiagError(f"{path} is no manifest ({error})") from None
    if found.schema != _SCHEMA:
        raise DiagError(f"{path} is a {found.schema}, not a {_SCHEMA}")
    return found


def write_manifest(manifest: Manifest, path: Path | None = None) -> Path:
    """Write it, one case a line."""
    path = path or shipped()
    encode = msgspec.json.Encoder(order="sorted").encode
    parts = []
    for name, family in manifest.families.items():
        cases = ",\n".join(encode(case).decode() for case in family.cases)
        dropped = encode(family.dropped).decode()
        parts.append(f'"{name}":{{"dropped":{dropped},"cases":[\n{cases}\n]}}')
    body = ",\n".join(parts)
    path.write_text(f'{{"schema":"{manifest.schema}","families":{{\n{body}\n}}}}\n', encoding="utf-8")
    return path


def listed(filled: Sequence[Filled]) -> Listed:
    """A family from its quotas as they came out, in the order of scenarios and seeds."""
    ordered = sorted(filled, key=lambda one: one.scenario)
    return Listed(
        tuple(spec for one in ordered for spec in one.kept),
        {one.scenario: one.dropped for one in ordered if one.dropped},
    )


def corpus_hash(families: Mapping[str, Listed]) -> str:
    """What a report is about: SHA-256 over every case's scenario, seed and digest (first 16 hex digits)."""
    hasher = hashlib.sha256()
    for name in sorted(families):
        for spec in families[name].cases:
            hasher.update(f"{name} {spec.scenario} {spec.seed} {spec.digest}\n".encode())
    return hasher.hexdigest()[:16]
