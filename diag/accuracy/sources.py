"""What ``diag bench`` is asked to judge: families by name, folders of bundles, single bundles."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from diag.accuracy.corpus import CORPUS, archive_of, digest_of, make, name_of
from diag.accuracy.families import FAMILIES
from diag.accuracy.label import Label, label_of
from diag.accuracy.manifest import Manifest
from diag.accuracy.reading import case_at, case_of, description_at
from diag.errors import DiagError, UsageError
from diag.model import Case

__all__ = ["RECONSTRUCTED", "RECORDED", "Work", "opened", "works"]

RECORDED = "recorded"
RECONSTRUCTED = "reconstructed"
_RECORDINGS = (("recorded", Path("tests/incidents")), ("recorded later", Path("tests/heldout")))
_ARCHIVES = (".zip", ".tar.gz", ".tgz")


class Work(msgspec.Struct, frozen=True):
    """One case to judge: a scenario with a seed (at ``path``, if ``make corpus`` has written it), a bundle at
    ``path``, or a reconstructed case by ``name``. ``digest``: of its content, "" when only making tells."""

    family: str
    name: str
    digest: str
    path: str = ""
    scenario: str = ""
    seed: int = 0


def works(asked: Sequence[str], manifest: Manifest | None) -> list[Work]:
    """Every case of ``asked``, in order. ``manifest`` is needed only for families of the corpus.

    Raises:
        UsageError: a name is neither a family, nor "recorded" or "reconstructed", nor an existing path.
    """
    found: list[Work] = []
    for text in asked:
        if text in FAMILIES:
            found += _of_family(text, manifest)
        elif text == RECONSTRUCTED:
            found += _reconstructed()
        elif text == RECORDED:
            found += _recorded()
        elif Path(text).exists():
            found += _at(Path(text))
        else:
            names = ", ".join((*FAMILIES, RECORDED, RECONSTRUCTED))
            raise UsageError(f"{text} does not exist", hint=f"give a bundle, a folder of them, or {names}")
    return found


def opened(work: Work) -> tuple[Case, Label, str]:
    """The case, its label, and the digest of what was read.

    Raises:
        DiagError: a made case is not the one that the manifest lists.
    """
    if work.path and (not work.scenario or _is_written(work)):
        return (
            case_at(Path(work.path)),
            label_of(description_at(Path(work.path)).get("label") or {}),
            work.digest,
        )
    if work.scenario:
        bundle = make(work.family, work.scenario, work.seed).bundle
    else:
        from diag.simulate.reconstructed import CASES

        bundle = CASES[work.name].bundle()
    digest = digest_of(bundle)
    if work.digest and digest != work.digest:
        raise DiagError(
            f"this is not the case of the manifest ({digest}, not {work.digest})",
            hint="the simulator changed: python -m bench.corpus --write-manifest lists its cases anew",
        )
    return case_of(bundle), label_of(bundle.label), digest


def _is_written(work: Work) -> bool:
    """Whether the archive at ``path`` is the case that is meant, and not one of an older simulator."""
    return Path(work.path).is_file() and description_at(Path(work.path)).get("digest") == work.digest


def _of_family(name: str, manifest: Manifest | None) -> Iterator[Work]:
    if manifest is None or name not in manifest.families:
        raise UsageError(
            f"the manifest lists no family {name}", hint="python -m bench.corpus --write-manifest writes it"
        )
    for spec in manifest.families[name].cases:
        path = str(archive_of(CORPUS / name, spec))
        yield Work(name, name_of(spec), spec.digest, path, spec.scenario, spec.seed)


def _reconstructed() -> Iterator[Work]:
    from diag.simulate.reconstructed import CASES

    for name in CASES:
        yield Work(RECONSTRUCTED, name, "")


def _recorded() -> list[Work]:
    found = [work for name, folder in _RECORDINGS if folder.is_dir() for work in _at(folder, name)]
    if not found:
        raise UsageError(
            "there are no recordings here", hint="run it at the top of a checkout, or give their folder"
        )
    return found


def _at(path: Path, family: str = "") -> Iterator[Work]:
    if _is_bundle(path):
        yield Work(family or path.parent.name or "bundles", _stem(path), _hashed(path), path=str(path))
        return
    inside = [one for one in sorted(path.iterdir()) if _is_bundle(one)] if path.is_dir() else []
    if not inside:
        raise UsageError(f"{path} is no bundle and holds none", hint="give a folder, .zip or .tar.gz")
    for one in inside:
        yield Work(family or path.name, _stem(one), _hashed(one), path=str(one))


def _is_bundle(path: Path) -> bool:
    if path.is_dir():
        return (path / "bundle.json").is_file()
    return path.name.endswith(_ARCHIVES)


def _stem(path: Path) -> str:
    for ending in _ARCHIVES:
        if path.name.endswith(ending):
            return path.name.removesuffix(ending)
    return path.name


def _hashed(path: Path) -> str:
    """Of the files as they lie there: reading them is all that is wanted of a bundle on disk."""
    hasher = hashlib.sha256()
    for one in [path] if path.is_file() else sorted(item for item in path.rglob("*") if item.is_file()):
        hasher.update(one.relative_to(path.parent).as_posix().encode())
        hasher.update(one.read_bytes())
    return hasher.hexdigest()[:32]
