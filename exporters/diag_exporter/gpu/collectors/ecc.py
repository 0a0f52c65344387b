"""Memory errors, and pages retired because of them."""

from __future__ import annotations

from diag_exporter.gpu.collectors.topic import GpuCollector, Table, counter, gauge
from diag_exporter.gpu.fleet import Gpu
from diag_exporter.gpu.readings import Ecc

__all__ = ["EccCollector"]

_KINDS = {"corrected": 0, "uncorrected": 1}
_LIFETIMES = {"volatile": 0, "aggregate": 1}
_RETIRED = {"single_bit": 29, "double_bit": 30}  # field ids
_PENDING = 31


class EccCollector(GpuCollector[Ecc]):
    """Slow: on some cards the counts are read from the card's flash."""

    name = "ecc"
    group = "slow"
    fields = (*_RETIRED.values(), _PENDING)
    families = (
        counter(
            "ecc_errors",
            "ECC errors: volatile since the driver was loaded, aggregate over the card's life",
            "nvmlDeviceGetTotalEccErrors",
            "ECC is off or the card has none",
            "kind",
            "lifetime",
        ),
        counter(
            "retired_pages",
            "Memory pages retired over the card's life",
            "fields 29 and 30",
            "the card remaps rows instead (Ampere and later)",
            "cause",
        ),
        gauge(
            "retired_pages_pending",
            "1 if pages are to be retired at the next reboot",
            "field 31",
            "the card remaps rows instead (Ampere and later)",
        ),
    )

    def read(self, gpu: Gpu) -> Ecc:
        errors: dict[tuple[str, str], float] = {}
        for kind, error in _KINDS.items():
            for lifetime, which in _LIFETIMES.items():
                count = gpu.ask("nvmlDeviceGetTotalEccErrors", error, which)
                if count is not None:
                    errors[kind, lifetime] = count
        retired = {cause: self.field(gpu, identity) for cause, identity in _RETIRED.items()}
        return Ecc(
            errors=errors,
            retired={cause: count for cause, count in retired.items() if count is not None},
            retirement_pending=self.field(gpu, _PENDING),
        )

    def write(self, table: Table, gpu: Gpu, reading: Ecc) -> None:
        for (kind, lifetime), count in reading.errors.items():
            table.put("gpu_ecc_errors_total", count, *gpu.labels, kind, lifetime)
        for cause, count in reading.retired.items():
            table.put("gpu_retired_pages_total", count, *gpu.labels, cause)
        table.put("gpu_retired_pages_pending", reading.retirement_pending, *gpu.labels)
