"""Make the corpus: ``python -m bench.corpus [--write-manifest] [FAMILY…]``.

Without an option every case of the committed manifest is made again, checked against its hash, and written to
bench/out/corpus/<family>/<case>.tar.gz. ``--write-manifest`` fills the families anew and writes the list.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from diag.accuracy.corpus import CORPUS
from diag.accuracy.families import FAMILIES, family_named
from diag.accuracy.manifest import (
    Listed,
    Manifest,
    corpus_hash,
    listed,
    read_manifest,
    shipped,
    write_manifest,
)
from diag.accuracy.running import make_family, remake
from diag.errors import DiagError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 when a case is not the one that the manifest lists."""
    parser = argparse.ArgumentParser(prog="python -m bench.corpus", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"default: {' '.join(FAMILIES)}")
    parser.add_argument("--write-manifest", action="store_true", help="fill the families anew")
    parser.add_argument("--cases", type=int, help="cases a family (default: as many as it is meant to have)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-bundles", action="store_true", help="write no archives")
    parser.add_argument("--manifest", type=Path, help="default: the committed one")
    given = parser.parse_args(arguments)
    try:
        return _fill(given) if given.write_manifest else _check(given)
    except DiagError as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 1


def _fill(given: argparse.Namespace) -> int:
    families: dict[str, Listed] = {}
    if given.families and (given.manifest or shipped()).exists():
        families.update(read_manifest(given.manifest).families)
    for name in given.families or FAMILIES:
        family = family_named(name)
        made = make_family(
            family, given.cases or family.cases, folder=_folder(given, name), jobs=given.jobs, say=_say
        )
        families[name] = listed(made)
        short = [one.scenario for one in made if one.short]
        print(f"{name}: {len(families[name].cases)} cases, {sum(one.dropped for one in made)} dropped")
        if short:
            print(f"  too few show their symptom: {', '.join(sorted(short))}")
    path = write_manifest(Manifest(families), given.manifest)
    print(f"wrote {path}, corpus {corpus_hash(families)}")
    return 0


def _check(given: argparse.Namespace) -> int:
    known = read_manifest(given.manifest).families
    wrong = 0
    for name in given.families or known:
        other = remake(name, known[name].cases, folder=_folder(given, name), jobs=given.jobs, say=_say)
        wrong += len(other)
        print(f"{name}: {len(known[name].cases)} cases, {len(other)} differ")
        for case in other[:5]:
            print(f"  {case}")
    if not wrong:
        print(f"corpus {corpus_hash(known)}")
    return 1 if wrong else 0


def _folder(given: argparse.Namespace, family: str) -> Path | None:
    return None if given.no_bundles else CORPUS / family


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
