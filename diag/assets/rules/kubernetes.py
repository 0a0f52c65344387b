"""Wrap rule files as the Prometheus operator's ``PrometheusRule``."""

from __future__ import annotations

from pathlib import PurePosixPath

from diag.assets.rules.links import DEFAULT_LINKS, Links
from diag.assets.rules.model import RuleFile
from diag.assets.rules.yaml_text import GENERATED, dumped, group, needs_text

__all__ = ["LABELS", "prometheus_rule", "prometheus_rule_path"]

LABELS = {"app.kubernetes.io/part-of": "llm-diag", "role": "alert-rules"}
"""Labels of every ``PrometheusRule``; many operators select rules by ``release`` or another one."""


def prometheus_rule_path(rule_file: RuleFile) -> str:
    """``alerts/slo.yml`` -> ``kubernetes/alerts-slo.yaml``; no glob of rule files, *.yml, finds it."""
    path = PurePosixPath(rule_file.path)
    return f"kubernetes/{path.parent}-{path.stem}.yaml"


def prometheus_rule(rule_file: RuleFile, links: Links = DEFAULT_LINKS) -> str:
    """The file as a Kubernetes resource, without a namespace: give one to ``kubectl apply -n``."""
    head = (
        f"# {rule_file.title}, for the Prometheus operator. Needs: {needs_text(rule_file.needs)}.\n"
        "# Your Prometheus selects rules by label (spec.ruleSelector): add its label below if it has one.\n"
        f"# {GENERATED}\n"
    )
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": rule_file.name, "labels": LABELS},
        "spec": {"groups": [group(rule_file, links)]},
    }
    return head + dumped(resource)
