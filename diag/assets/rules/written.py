"""The files below ``rules/``, as text: what ``make generate`` writes and ``--check`` compares."""

from __future__ import annotations

from pathlib import Path

from diag.assets.rules.alertmanager import alertmanager_text
from diag.assets.rules.catalogue import FILES
from diag.assets.rules.kubernetes import prometheus_rule, prometheus_rule_path
from diag.assets.rules.links import DEFAULT_LINKS, Links
from diag.assets.rules.yaml_text import file_text

__all__ = ["stale_rules", "written"]


def written(links: Links = DEFAULT_LINKS) -> dict[str, str]:
    """Path below ``rules/`` -> text, for every generated file."""
    plain = {file.path: file_text(file, links) for file in FILES}
    wrapped = {prometheus_rule_path(file): prometheus_rule(file, links) for file in FILES}
    return {**plain, **wrapped, "alertmanager.yaml": alertmanager_text()}


def stale_rules(root: Path, *, write: bool) -> list[str]:
    """The files below ``root``/rules that differ from what they are generated from, or should not be there;
    with ``write``, those that were rewritten or removed."""
    folder = root / "rules"
    wanted = written()
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    changed = []
    for name in sorted(wanted.keys() | there):
        path = folder / name
        if name in wanted and path.exists() and path.read_text(encoding="utf-8") == wanted[name]:
            continue
        changed.append(str(path.relative_to(root)))
        if write and name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name], encoding="utf-8")
        elif write:
            path.unlink()
    return changed
