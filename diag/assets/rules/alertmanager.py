"""An example of Alertmanager's routes and inhibitions for these alerts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diag.assets.rules.yaml_text import GENERATED, dumped

__all__ = ["INHIBITIONS", "Inhibition", "alertmanager_text"]


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While one of ``sources`` fires, ``targets`` with the same labels ``equal`` stay silent.

    Alertmanager takes a label that both lack for equal, so that ``present`` must be there."""

    why: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    equal: tuple[str, ...]
    present: tuple[str, ...] = ()

    def rule(self) -> dict[str, Any]:
        """As Alertmanager reads it."""
        there = [f'{label}=~".+"' for label in self.present]
        return {
            "source_matchers": [_alerts(self.sources), *there],
            "target_matchers": [_alerts(self.targets), *there],
            "equal": list(self.equal),
        }


def _alerts(names: tuple[str, ...]) -> str:
    return f'alertname=~"{"|".join(names)}"' if len(names) > 1 else f'alertname="{names[0]}"'


_BROKEN_GPU = ("GPUXidFatal", "GPUUncorrectableECC", "GPULost", "GPURowRemapFailed")
_MODEL = ("cluster", "namespace", "job", "model_name")
_TARGET = ("cluster", "job", "instance")

INHIBITIONS: tuple[Inhibition, ...] = (
    Inhibition(
        "A fast burn says more than a slow one.",
        ("LLMTTFTBudgetBurnFast",),
        ("LLMTTFTBudgetBurnMedium", "LLMTTFTBudgetBurnSlow"),
        _MODEL,
        ("job",),
    ),
    Inhibition(
        "So does the one in between.",
        ("LLMTTFTBudgetBurnMedium",),
        ("LLMTTFTBudgetBurnSlow",),
        _MODEL,
        ("job",),
    ),
    Inhibition(
        "A broken card throttles, loses links and makes programs fault.",
        _BROKEN_GPU,
        ("GPUThermalThrottle", "GPUPowerBrake", "GPUPowerCapped", "GPUXidAppFault", "GPUNVLinkErrors",
         "GPUPCIeLinkDegraded", "GPURowRemapPending"),
        ("cluster", "instance"),
        ("instance",),
    ),
    Inhibition(
        "The engine on a broken card stands still. Needs `node` on engines and GPUs alike.",
        _BROKEN_GPU,
        ("LLMEngineStalled", "LLMQueueStandstill", "LLMEngineUnhealthy"),
        ("cluster", "node"),
        ("node",),
    ),
    Inhibition(
        "Who is not scraped exports nothing.",
        ("LLMTargetDown",),
        ("LLMRuleInputMissing",),
        _TARGET,
        ("instance",),
    ),
    Inhibition(
        "Who stands still queues.",
        ("LLMEngineStalled",),
        ("LLMQueueGrowing", "LLMQueueStandstill"),
        _TARGET,
        ("instance",),
    ),
    Inhibition(
        "Who restarts all the time has a cold cache, another configuration and gaps.",
        ("LLMEngineRestartLoop",),
        ("LLMEngineConfigChanged", "LLMPrefixCacheHitCollapse", "LLMRuleInputMissing"),
        _TARGET,
        ("instance",),
    ),
)  # fmt: skip
"""Only where the one explains the other by itself; causes are not muted by symptoms."""


def alertmanager_text() -> str:
    """``rules/alertmanager.yaml``: routes by severity, inhibitions, receivers to be replaced."""
    routes = {"route": _route()}
    receivers = {
        "receivers": [_receiver("page"), _receiver("ticket"), _receiver("deadman"), {"name": "nobody"}]
    }
    rules = "".join(f"  # {item.why}\n{_indented(item.rule())}" for item in INHIBITIONS)
    return f"{_HEAD}{dumped(routes)}\n{dumped(receivers)}\ninhibit_rules:\n{rules}"


_HEAD = f"""\
# Example of Alertmanager's configuration for llm-diag's alerts: critical pages, warning opens a ticket, info
# goes nowhere (dashboards show it), the watchdog goes to somebody outside who misses it when it stops.
# Replace the receivers by yours. Check with: amtool check-config alertmanager.yaml
# {GENERATED}
"""


def _route() -> dict[str, Any]:
    by_severity = [
        {
            "matchers": ['severity="none"'],
            "receiver": "deadman",
            "group_wait": "0s",
            "group_interval": "1m",
            "repeat_interval": "5m",
        },
        {"matchers": ['severity="critical"'], "receiver": "page", "repeat_interval": "1h"},
        {"matchers": ['severity="warning"'], "receiver": "ticket", "repeat_interval": "12h"},
    ]
    ours = {
        "matchers": ['service="llm"'],
        "receiver": "nobody",
        "group_by": ["cluster", "job"],
        "group_wait": "30s",
        "group_interval": "5m",
        "routes": by_severity,
    }
    return {"receiver": "ticket", "routes": [ours]}


def _receiver(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "webhook_configs": [{"url": f"http://127.0.0.1:5001/{name}", "send_resolved": True}],
    }


def _indented(rule: dict[str, Any]) -> str:
    return "".join(f"  {line}\n" for line in dumped([rule]).splitlines())
