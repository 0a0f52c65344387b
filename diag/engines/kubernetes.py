"""Kubernetes: containers as cAdvisor (inside the kubelet) sees them.

The names were read from cAdvisor's sources; no recorded page of it is kept with the tests. The
cgroups above a container carry no ``container`` label and hold the same usage again, and the pause
container is called POD: both are left out.
"""

from __future__ import annotations

from diag.engines.combine import rate, share
from diag.engines.registry import Absent, Definition, Engine
from diag.signals.algebra import Aggregate, Gauge, Select, ratio, select

__all__ = ["KUBERNETES"]

_BY = ("instance", "node", "namespace", "pod", "container")


def _containers(name: str) -> Select:
    return select(name, container="!~|POD")


_SIGNALS: dict[str, Definition | Absent] = {
    "container_cpu_throttled_ratio": Definition(
        share(
            ratio(
                rate(_containers("container_cpu_cfs_throttled_periods_total"), _BY),
                rate(_containers("container_cpu_cfs_periods_total"), _BY),
            )
        ),
        verified=False,
        note="only containers with a CPU limit have it",
    ),
    "container_memory_working_set_bytes": Definition(
        Aggregate("max", Gauge(_containers("container_memory_working_set_bytes")), _BY), verified=False
    ),
}

KUBERNETES = Engine(
    name="kubernetes",
    title="cAdvisor",
    probe=_containers("container_memory_working_set_bytes"),
    signals=_SIGNALS,
)
