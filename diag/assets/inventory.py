"""What ships: every file with its kind, what it is, what it needs, and where an export puts it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Literal

from diag.assets.owners import PRODUCERS, SERVING, owners
from diag.assets.panels import Dashboard, dashboard
from diag.assets.rules.catalogue import FILES
from diag.assets.rules.kubernetes import prometheus_rule_path
from diag.assets.rules.model import Needs, RuleFile
from diag.assets.shipped import File, shipped_files
from diag.errors import UsageError

__all__ = ["KINDS", "Asset", "Choice", "dashboards", "inventory"]

Kind = Literal["rules", "dashboard", "runbook", "example"]
KINDS: tuple[Kind, ...] = ("rules", "dashboard", "runbook", "example")
"""In the order in which they are listed."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One shipped file.

    ``path`` is where an export puts it, below the folder asked for; ``needs`` the producers without
    which it is blind (all entries; ``a|b`` is met by either); ``file`` is what is copied."""

    path: str
    kind: Kind
    title: str
    needs: Needs
    file: File

    @property
    def engines(self) -> tuple[str, ...]:
        """The serving engines it is made for; none if it is for any."""
        named = {name for entry in self.needs for name in entry.split("|")}
        return tuple(name for name in SERVING if name in named)


@dataclass(frozen=True, slots=True)
class Choice:
    """What somebody runs: serving engines, and everything else that is scraped. Empty means any;
    ``others`` of ``("none",)`` means engines alone."""

    engines: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``UsageError`` for a name that is no producer's."""
        watching = tuple(name for name in PRODUCERS if name not in (*SERVING, "process"))
        _known(self.engines, SERVING, "--engine")
        _known(self.others, (*watching, "none"), "--needs")
        if "none" in self.others and len(self.others) > 1:
            raise UsageError("--needs none excludes every other --needs")

    def fits(self, needs: Needs) -> bool:
        """Whether every entry of ``needs`` is met by something that is run."""
        return all(any(self._runs(name) for name in entry.split("|")) for entry in needs)

    def _runs(self, name: str) -> bool:
        if name == "process":  # what Prometheus itself writes of each target
            return True
        asked = self.engines if name in SERVING else self.others
        return not asked or name in asked


def _known(names: Iterable[str], known: Sequence[str], option: str) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name} is nothing we know", hint=f"choose from {', '.join(known)}")


@lru_cache(maxsize=1)
def inventory() -> tuple[Asset, ...]:
    """Every shipped file, by kind and path."""
    found = [*_rules(), *_dashboards(), *_runbooks(), *_deployment()]
    return tuple(sorted(found, key=lambda one: (KINDS.index(one.kind), one.path)))


def dashboards() -> tuple[Dashboard, ...]:
    """The shipped dashboards, read."""
    return tuple(
        dashboard(json.loads(file.read_bytes()))
        for file in shipped_files("dashboards")
        if PurePosixPath(file.path).suffix == ".json"
    )


def _rules() -> Iterator[Asset]:
    known = {f"rules/{one.path}": one for one in FILES}
    wrapped = {f"rules/{prometheus_rule_path(one)}": one for one in FILES}
    for file in shipped_files("rules"):
        # Prometheus would refuse all but the first kind, and rule_files is often a glob: they stand apart.
        apart = f"examples/{file.path.removeprefix('rules/')}"
        if file.path in known:
            own = known[file.path]
            yield Asset(file.path, "rules", _rules_title(own), own.needs, file)
        elif file.path in wrapped:
            own = wrapped[file.path]
            yield Asset(apart, "example", f"PrometheusRule: {own.title}", own.needs, file)
        else:
            yield Asset(apart, "example", "Alertmanager: routes and inhibitions", (), file)


def _rules_title(own: RuleFile) -> str:
    counts = ((len(own.alerts), "alert"), (len(own.recordings), "recording"))
    text = ", ".join(f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count)
    return f"{own.title}: {text}" if text else own.title


def _dashboards() -> Iterator[Asset]:
    for file in shipped_files("dashboards"):
        below = PurePosixPath(file.path)
        if below.suffix == ".json":
            own = dashboard(json.loads(file.read_bytes()))
            title = f"{own.title}: {len(own.panels)} panels"
            yield Asset(file.path, "dashboard", title, _read_by(own), file)
        else:
            rest = file.path.removeprefix("dashboards/")
            yield Asset(f"examples/grafana/{rest}", "example", "Grafana: provisioning", (), file)


def _read_by(own: Dashboard) -> Needs:
    """Any one of the producers whose metrics its panels read."""
    named = {name for one in own.selections() for name in owners(one.name)} - {"process"}
    return ("|".join(name for name in PRODUCERS if name in named),) if named else ()


def _runbooks() -> Iterator[Asset]:
    for file in shipped_files("runbooks"):
        if PurePosixPath(file.path).suffix == ".md":
            yield Asset(file.path, "runbook", _heading(file), (), file)


def _heading(file: File) -> str:
    lines = file.read_bytes().decode("utf-8").splitlines()
    heading = next((line[2:] for line in lines if line.startswith("# ")), "")
    return heading.partition(": ")[2] or heading


_DEPLOYMENT = {
    "dcgm": ("dcgm-exporter: the counters that alerts and triage read", ("dcgm",)),
    "kubernetes": ("diag-exporter on Kubernetes", ("llmdiag",)),
    "systemd": ("diag-exporter under systemd", ("llmdiag",)),
}


def _deployment() -> Iterator[Asset]:
    for file in shipped_files("deploy"):
        below = file.path.removeprefix("deploy/")
        title, needs = _DEPLOYMENT[below.partition("/")[0]]
        yield Asset(f"examples/{below}", "example", title, needs, file)
