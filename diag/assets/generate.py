"""Write every generated file of the checkout, or check that none is stale.

python -m diag.assets.generate            write
python -m diag.assets.generate --check    exit 1 and name the stale files
"""

from __future__ import annotations

import sys
from pathlib import Path

from diag.assets.incidents import SHIPPED, index_text, members, pack, read_members
from diag.assets.readme import example_run, filled
from diag.assets.rules.written import stale_rules
from diag.assets.runbooks import stale_runbooks

__all__ = ["main", "stale"]

_CHECKOUT = Path(__file__).resolve().parents[2]


def _incidents(root: Path, *, write: bool) -> list[str]:
    """Compare by content, not by bytes: another zlib packs the same files differently."""
    folder = root / "diag" / "_shipped" / "incidents"
    changed: list[str] = []
    for item in SHIPPED:
        files = members(root / "tests" / "incidents" / item.recording)
        path = folder / item.file
        if path.exists() and read_members(path.read_bytes()) == files:
            continue
        changed.append(str(path.relative_to(root)))
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pack(item.name, files))
    index = folder / "index.toml"
    if not index.exists() or index.read_text(encoding="utf-8") != index_text():
        changed.append(str(index.relative_to(root)))
        if write:
            index.write_text(index_text(), encoding="utf-8")
    wanted = {item.file for item in SHIPPED} | {"index.toml"}
    for extra in sorted(path for path in folder.iterdir() if path.name not in wanted):
        changed.append(str(extra.relative_to(root)))
        if write:
            extra.unlink()
    return changed


def _readme(root: Path, *, write: bool) -> list[str]:
    path = root / "README.md"
    before = path.read_text(encoding="utf-8")
    after = filled(before, example_run(root))
    if after == before:
        return []
    if write:
        path.write_text(after, encoding="utf-8")
    return [path.name]


def stale(root: Path, *, write: bool = False) -> list[str]:
    """The generated files under ``root`` that differ from what they are generated from; with
    ``write``, the files that were rewritten."""
    return [
        *_incidents(root, write=write),
        *stale_rules(root, write=write),
        *stale_runbooks(root, write=write),
        *_readme(root, write=write),
    ]


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    check = "--check" in arguments
    changed = stale(_CHECKOUT, write=not check)
    for name in changed:
        sys.stdout.write(f"{'stale' if check else 'wrote'}: {name}\n")
    if check and changed:
        sys.stdout.write("run `make generate` and commit the result\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
