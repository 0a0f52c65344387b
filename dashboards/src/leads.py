"""Where a panel leads: to runbooks, to another board, to the triage of the window shown."""

from __future__ import annotations

from diag.assets.rules.links import Links

__all__ = ["SERVICE_DEFAULT", "SERVICE_VARIABLE", "board_url", "runbook_url", "triage_url"]

SERVICE_VARIABLE = "llmdiag_url"
"""The variable that holds where ``diag serve`` answers: no host is built in."""

SERVICE_DEFAULT = "http://127.0.0.1:9878"
"""What it is before somebody sets it, in the page or with ``&var-llmdiag_url=``."""

_SERVICE = f"${{{SERVICE_VARIABLE}:raw}}"
_KEPT = ("datasource", "cluster", "job", "instance", "model", "host")


def runbook_url(name: str) -> str:
    """The runbook of a hypothesis or symptom, of this release: the rules' own link."""
    return Links(service=_SERVICE).runbook(name)


def triage_url() -> str:
    """The triage of what is on the screen: instance and time range as chosen."""
    return f"{_SERVICE}/triage?${{instance:queryparam}}&from=${{__from}}&to=${{__to}}"


def board_url(uid: str, variable: str, label: str) -> str:
    """A board by its uid for what ``label`` of the clicked series names; time and all other variables stay.
    Without a ``variable`` it is the board as it is."""
    kept = "&".join(f"${{{name}:queryparam}}" for name in _KEPT if name != variable)
    chosen = f"&var-{variable}=${{__field.labels.{label}}}" if variable else ""
    return f"/d/{uid}?{kept}{chosen}&${{__url_time_range}}"
