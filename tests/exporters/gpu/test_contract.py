"""Names that rules and triage rely on, and the manners of every family."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from diag_exporter.gpu import TOPICS, GpuOptions, collectors
from tests.exporters.gpu.machine import Machine

FAMILIES = {family.name: family for one in collectors(GpuOptions()) for family in one.families}

# alerts.md §6 and the issue.
PROMISED = {
    "llmdiag_gpu_up": ("uuid", "gpu"),
    "llmdiag_gpu_info": ("uuid", "gpu", "name", "driver_version", "pci_bus_id"),
    "llmdiag_gpu_clock_event_active": ("uuid", "gpu", "reason"),
    "llmdiag_gpu_clock_event_seconds_total": ("uuid", "gpu", "reason"),
    "llmdiag_gpu_xid_total": ("uuid", "gpu", "class", "xid"),
    "llmdiag_gpu_pcie_link_width": ("uuid", "gpu"),
    "llmdiag_gpu_pcie_link_width_max": ("uuid", "gpu"),
    "llmdiag_gpu_pcie_link_generation": ("uuid", "gpu"),
    "llmdiag_gpu_pcie_link_generation_max": ("uuid", "gpu"),
    "llmdiag_gpu_process_memory_bytes": ("uuid", "process", "owner"),
    "llmdiag_gpu_process_sm_ratio": ("uuid", "process", "owner"),
    "llmdiag_gpu_foreign_memory_bytes": ("uuid", "gpu"),
    "llmdiag_gpu_foreign_sm_ratio": ("uuid", "gpu"),
    "llmdiag_engine_numa_match": ("uuid", "gpu"),
}


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_promised_names_and_labels(name):
    assert FAMILIES[name].labels == PROMISED[name]


def test_each_family_is_said_well():
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"llmdiag_[a-z0-9_]+", name)
        assert name.endswith("_total") == (family.kind == "counter"), name
        assert name.endswith("_info") == (family.kind == "info"), name
        assert family.help, name
        assert family.source, name
        assert family.absence, name
        assert not set(family.labels) & {"pid", "session", "instance", "job"} or not family.default, name
        assert not re.search(r"_(percent|mhz|mib|milliseconds|mw)\b", name), name


def test_every_topic_is_built_once_and_identity_last_of_the_fast():
    built = collectors(GpuOptions())
    assert tuple(one.name for one in built) == TOPICS
    assert [one.name for one in built if one.group == "fast"][-1] == "identity"


def test_the_full_page_of_a_healthy_machine_stays_small(machine: Machine):
    machine.run()
    series = sum(len(rows) for rows in machine.rows.values())
    assert series / 8 < 110


def test_start_up_is_light_and_imports_no_numbers_library():
    script = (
        "import re, sys; from diag_exporter.gpu import collectors; collectors();"
        # Not ru_maxrss: that begins with what the process that forked this one had.
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024,"
        " sorted({'numpy', 'pandas', 'scipy', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    megabytes, heavy = ran.stdout.split(" ", 1)
    assert float(megabytes) < 60
    assert heavy.strip() == "[]"
