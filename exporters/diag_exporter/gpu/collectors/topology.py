"""Does the serving process run near its GPU?"""

from __future__ import annotations

from diag_exporter.families import Family, Rows
from diag_exporter.gpu.collectors.topic import GPU, GpuCollector, gauge
from diag_exporter.gpu.fleet import Fleet, Gpu
from diag_exporter.gpu.host import Host
from diag_exporter.gpu.options import GpuOptions
from diag_exporter.gpu.readings import Topology
from diag_exporter.gpu.survey import Survey

__all__ = ["TopologyCollector"]

_WORDS = 16  # of 64 CPUs each: the largest hosts have about 1,000
_UNKNOWN = "no own process on the GPU, or the host does not tell which CPUs are near"


class TopologyCollector(GpuCollector[Topology]):
    """nvmlDeviceGetNumaNodeId answers only where the GPU itself is a node: it is not what is meant."""

    name = "topology"
    group = "slow"
    families = (
        gauge(
            "numa_node",
            "NUMA node the GPU is attached to",
            "the PCI device's numa_node, else nvmlDeviceGetCpuAffinity",
            "the firmware does not tell",
        ),
        Family(
            "llmdiag_engine_numa_match",
            "gauge",
            "1 if the serving process may run only on CPUs near its GPU, 0 if only on others",
            GPU,
            _UNKNOWN + "; also if it may run on both",
            "/proc/PID/status against the PCI device's local_cpulist",
        ),
        Family(
            "llmdiag_engine_cpus_local_ratio",
            "gauge",
            "Share of the CPUs allowed to the serving process that are near its GPU",
            GPU,
            _UNKNOWN,
            "/proc/PID/status against the PCI device's local_cpulist",
        ),
    )

    def __init__(self, fleet: Fleet, options: GpuOptions, survey: Survey, host: Host) -> None:
        super().__init__(fleet, options)
        self._survey = survey
        self._host = host

    def collect(self, now: float) -> Rows:
        visit = self._survey.look(now)
        table = self.table()
        for gpu, (node, near) in self.fleet.read(now, self._place):
            guests = visit.guests.get(gpu.uuid)
            own = [one.pid for one in guests.uses if one.owner == "own"] if guests else []
            reading = Topology(node, self._local(own, near))
            table.put("gpu_numa_node", reading.node, *gpu.labels)
            table.put("engine_cpus_local_ratio", reading.local, *gpu.labels)
            if reading.local in (0.0, 1.0):
                table.put("engine_numa_match", reading.local, *gpu.labels)
        return table.rows()

    def _place(self, gpu: Gpu) -> tuple[int | None, frozenset[int] | None]:
        near = self._host.local_cpus(gpu.bus) or gpu.kept("cpus", lambda: _affinity(gpu))
        node = self._host.gpu_node(gpu.bus)
        if node is None and near:
            node = self._host.node_of_cpus(near)
        return node, near

    def _local(self, pids: list[int], near: frozenset[int] | None) -> float | None:
        """The worst placed process decides."""
        if not near:
            return None
        shares = [
            len(allowed & near) / len(allowed) for pid in pids if (allowed := self._host.allowed_cpus(pid))
        ]
        return min(shares, default=None)


def _affinity(gpu: Gpu) -> frozenset[int] | None:
    words = gpu.ask("nvmlDeviceGetCpuAffinity", _WORDS)
    if words is None:
        return None
    cpus = (64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)
    return frozenset(cpus) or None
