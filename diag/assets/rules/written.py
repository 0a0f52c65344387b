"""The files below ``rules/``, as text: what ``make generate`` writes and ``--check`` compares."""

from __future__ import annotations

from diag.assets.rules.alertmanager import alertmanager_text
from diag.assets.rules.catalogue import FILES
from diag.assets.rules.kubernetes import prometheus_rule, prometheus_rule_path
from diag.assets.rules.links import DEFAULT_LINKS, Links
from diag.assets.rules.yaml_text import file_text

__all__ = ["written"]


def written(links: Links = DEFAULT_LINKS) -> dict[str, str]:
    """Path below ``rules/`` -> text, for every generated file."""
    plain = {file.path: file_text(file, links) for file in FILES}
    wrapped = {prometheus_rule_path(file): prometheus_rule(file, links) for file in FILES}
    return {**plain, **wrapped, "alertmanager.yaml": alertmanager_text()}
