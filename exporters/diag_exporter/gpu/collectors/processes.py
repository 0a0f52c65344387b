"""Who else is on the GPU: memory and SM use by process, and of all that is not ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from diag_exporter.families import Family, Rows
from diag_exporter.gpu.collectors.topic import GpuCollector, Table, gauge
from diag_exporter.gpu.fleet import Fleet, Gpu
from diag_exporter.gpu.options import GpuOptions
from diag_exporter.gpu.readings import ProcessUse
from diag_exporter.gpu.survey import Guests, Survey

__all__ = ["ProcessesCollector"]

_PROCESS = ("uuid", "process", "owner")
_NOT_TOLD = "the driver does not tell (MIG for SM use), or there is no such process"


class ProcessesCollector(GpuCollector[None]):
    """Processes of one name and owner are one series; beyond ``top_n`` on a GPU they are ``other``."""

    name = "processes"
    group = "slow"
    families = (
        Family(
            "llmdiag_gpu_process_memory_bytes",
            "gauge",
            "GPU memory by process; owner own: serves models here, foreign: somebody else's, unknown: out of"
            " our PID namespace",
            _PROCESS,
            _NOT_TOLD,
            "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses",
        ),
        Family(
            "llmdiag_gpu_process_sm_ratio",
            "gauge",
            "Share of SM time by process since the last look",
            _PROCESS,
            _NOT_TOLD,
            "nvmlDeviceGetProcessUtilization",
        ),
        gauge(
            "foreign_memory_bytes",
            "GPU memory of all foreign processes, 0 if there are none",
            "nvmlDeviceGetComputeRunningProcesses",
            "not told, or whose they are cannot be known",
        ),
        gauge(
            "foreign_sm_ratio",
            "Share of SM time of all foreign processes, 0 if there are none",
            "nvmlDeviceGetProcessUtilization",
            "MIG, or whose they are cannot be known",
        ),
        gauge("processes", "Processes on the GPU", "as above", "not told", "owner"),
        Family(
            "llmdiag_gpu_pid_namespace_mismatch",
            "gauge",
            "1 if there are processes on the GPUs and none of their pids is one of ours: owners are unknown"
            " until the exporter shares the host's PID namespace",
            (),
            "no GPU tells about processes",
            "/proc",
        ),
        Family(
            "llmdiag_gpu_process_info",
            "info",
            "Pids behind the largest processes",
            ("uuid", "process", "owner", "pid"),
            _NOT_TOLD,
            "nvmlDeviceGetComputeRunningProcesses",
            False,
        ),
    )

    def __init__(self, fleet: Fleet, options: GpuOptions, survey: Survey) -> None:
        super().__init__(fleet, options)
        self._survey = survey
        self._top = options.top_n

    def collect(self, now: float) -> Rows:
        visit = self._survey.look(now)
        table = self.table()
        for gpu in self.fleet.known.values():
            guests = visit.guests.get(gpu.uuid)
            if guests is not None:
                self._write_processes(table, gpu, guests.uses)
                self._write_sums(table, gpu, guests)
        if visit.guests:
            table.put("gpu_pid_namespace_mismatch", visit.mismatch)
        return table.rows()

    def _write_processes(self, table: Table, gpu: Gpu, uses: Sequence[ProcessUse]) -> None:
        groups: dict[tuple[str, str], list[ProcessUse]] = {}
        for use in uses:
            groups.setdefault((use.name, use.owner), []).append(use)
        ranked = sorted(groups, key=lambda one: _weight(groups[one]), reverse=True)
        shown: dict[tuple[str, str], list[ProcessUse]] = {one: groups[one] for one in ranked[: self._top]}
        for name in ranked[self._top :]:
            shown.setdefault(("other", name[1]), []).extend(groups[name])
        for (process, owner), members in shown.items():
            labels = (gpu.uuid, process, owner)
            table.put("gpu_process_memory_bytes", _sum(one.memory for one in members), *labels)
            table.put("gpu_process_sm_ratio", _sum(one.sm for one in members), *labels)
        for process, owner in ranked[: self._top]:
            for one in groups[process, owner][: self._top]:
                table.put("gpu_process_info", 1, gpu.uuid, process, owner, str(one.pid))

    def _write_sums(self, table: Table, gpu: Gpu, guests: Guests) -> None:
        uses = guests.uses
        for owner in ("own", "foreign", "unknown"):
            count = sum(one.owner == owner for one in uses)
            if count or owner != "unknown":
                table.put("gpu_processes", count, *gpu.labels, owner)
        if any(one.owner == "unknown" for one in uses):
            return
        foreign = [one for one in uses if one.owner == "foreign"]
        # With nobody foreign the sum is a true 0, where the driver tells the quantity at all.
        if guests.memory_told:
            table.put("gpu_foreign_memory_bytes", _sum(one.memory for one in foreign), *gpu.labels)
        if guests.sm_told:
            table.put("gpu_foreign_sm_ratio", _sum(one.sm for one in foreign), *gpu.labels)


def _sum(parts: Iterable[float | None]) -> float | None:
    """The sum, or None if a part is not known: a sum without it would be too small."""
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _weight(uses: Sequence[ProcessUse]) -> tuple[float, float]:
    return sum(one.memory or 0.0 for one in uses), sum(one.sm or 0.0 for one in uses)
