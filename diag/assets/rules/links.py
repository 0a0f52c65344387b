"""Where an alert's links lead: runbook, dashboard, triage.

No host is built in. Prometheus adds the ``external_labels`` of its own configuration to what a
template can read, so an operator sets two of them once:

    global:
      external_labels:
        llmdiag_url: https://diag.example       # where `diag serve` answers
        grafana_url: https://grafana.example

Runbook links are pinned to the release that the rules came with. Whoever wants no external labels
builds the rules with the addresses in them: ``Links(service="https://diag.example", …)``.
"""

from __future__ import annotations

from dataclasses import dataclass

from diag import __version__

__all__ = ["DEFAULT_LINKS", "Links"]

# Labels of alerts -> variables of dashboards; diag-exporter's ``engine`` is an engine's ``instance``.
_VARIABLES = {
    "instance": "instance",
    "engine": "instance",
    "job": "job",
    "model_name": "model",
    "model": "model",
}
# What a scrape target calls itself is not to be trusted: whoever pastes the command runs a shell.
_SAFE = '{{ reReplaceAll "[^A-Za-z0-9_.:/-]" "_" $labels.%s }}'


def _query(label: str) -> str:
    return f"{{{{ $labels.{label} | urlquery }}}}"


@dataclass(frozen=True, slots=True)
class Links:
    """Templates of an alert's links; ``service`` and ``grafana`` are addresses without a slash at the end."""

    service: str = "{{ $externalLabels.llmdiag_url }}"
    grafana: str = "{{ $externalLabels.grafana_url }}"
    version: str = __version__

    def runbook(self, name: str) -> str:
        """The runbook of a hypothesis or symptom, of this release."""
        return f"{self.service}/runbooks/{name}?v={self.version}"

    def dashboard(self, name: str, labels: tuple[str, ...], *, of_host: bool = False) -> str:
        """A dashboard by its fixed uid, its variables set from those of the alert's labels it knows.

        ``of_host``: the alert's ``instance`` is a GPU's or host's exporter. The variable ``instance`` is
        an engine's, and set to an exporter's it would empty every other panel."""
        variables = _VARIABLES | ({"instance": "host"} if of_host else {})
        chosen = "".join(f"&var-{variables[lab]}={_query(lab)}" for lab in labels if lab in variables)
        return f"{self.grafana}/d/llmdiag-{name}{chosen.replace('&', '?', 1)}"

    def triage(self, alert: str, labels: tuple[str, ...]) -> str:
        """The triage page for this alert."""
        chosen = "".join(f"&{label}={_query(label)}" for label in labels)
        return f"{self.service}/triage?alertname={alert}{chosen}"

    def triage_command(self, look_back: str) -> str:
        """The same in a shell. Not narrowed to the alert's instance: its peers are the controls, and the
        GPU's and host's exporters bear other instances."""
        only = "{{ if $labels.cluster }} --match cluster=" + _SAFE % "cluster" + "{{ end }}"
        return f"diag triage --last {look_back}{only}"


DEFAULT_LINKS = Links()
"""What the committed rules are built with."""
