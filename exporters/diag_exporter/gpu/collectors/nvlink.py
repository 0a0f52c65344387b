"""NVLink: which links are up, and errors over all of them."""

from __future__ import annotations

from diag_exporter.gpu.collectors.topic import GpuCollector, Table, counter, gauge
from diag_exporter.gpu.fleet import Gpu
from diag_exporter.gpu.readings import NvLink

__all__ = ["NvLinkCollector"]

_ERRORS = {"crc_flit": 38, "crc_data": 45, "replay": 52, "recovery": 59}  # totals over all links
_COUNT = 91  # field: links of this GPU
_MOST = 36  # NVML_NVLINK_MAX_LINKS


class NvLinkCollector(GpuCollector[NvLink]):
    """A link that trains down makes tensor parallel steps slow without any error on the host."""

    name = "nvlink"
    group = "slow"
    fields = (*_ERRORS.values(), _COUNT)
    families = (
        gauge("nvlink_links", "NVLinks the GPU tells about", "nvmlDeviceGetNvLinkState", "no NVLink"),
        gauge("nvlink_links_active", "NVLinks that are up", "nvmlDeviceGetNvLinkState", "no NVLink"),
        counter(
            "nvlink_errors",
            "NVLink errors over all links by kind",
            "fields 38, 45, 52 and 59",
            "no NVLink, or a card that keeps no totals",
            "kind",
        ),
        gauge(
            "nvlink_up",
            "1 if the link is up",
            "nvmlDeviceGetNvLinkState",
            "the GPU has no such link",
            "link",
            default=False,
        ),
    )

    def read(self, gpu: Gpu) -> NvLink:
        values = self.fleet.fields(gpu, self.group)
        links: dict[int, bool] = {}
        for link in range(min(int(values.get(_COUNT, _MOST)), _MOST)):
            state = gpu.ask("nvmlDeviceGetNvLinkState", link)
            if state is None and not links:
                break  # the first link is refused: a card without any, not worth 35 more calls
            if state is not None:
                links[link] = bool(state)
        return NvLink(
            links=links, errors={kind: values[one] for kind, one in _ERRORS.items() if one in values}
        )

    def write(self, table: Table, gpu: Gpu, reading: NvLink) -> None:
        if not reading.links:
            return
        table.put("gpu_nvlink_links", len(reading.links), *gpu.labels)
        table.put("gpu_nvlink_links_active", sum(reading.links.values()), *gpu.labels)
        for kind, count in reading.errors.items():
            table.put("gpu_nvlink_errors_total", count, *gpu.labels, kind)
        for link, up in reading.links.items() if self.detail else ():
            table.put("gpu_nvlink_up", up, *gpu.labels, str(link))
