"""Whatever the driver says, the page parses and no counter is negative, no number or goes back unasked."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from diag_exporter.families import Histogram
from tests.exporters.gpu.machine import Machine

_NUMBERS = [
    "sm", "sm_max", "memory_clock", "reasons", "reasons_known", "margin", "power", "limit", "energy", "busy",
    "memory_busy", "total", "used", "reserved", "width", "width_max", "generation", "replays", "links",
    "links_up", "mig_on", "events", "persistence", "code",
]  # fmt: skip
_WORDS = st.one_of(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
_FIELDS = st.tuples(
    st.sampled_from([29, 30, 31, 38, 45, 52, 59, 74, 75, 76, 82, 91, 173, 197, 198, 230, 269, 270, 271]),
    st.integers(0, 8),
    st.binary(min_size=8, max_size=8),
    st.sampled_from([0, 0, 0, 3, 10, 15, 999]),
)
_CALLS = [
    "nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetProcessUtilization",
    "nvmlEventSetWait_v2", "nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetMemoryInfo_v2",
]  # fmt: skip
_RULES = st.tuples(
    st.sampled_from(_CALLS), st.sampled_from([1, 3, 6, 10, 13, 15, 16, 18, 999]), st.integers(-1, 2)
)
_PROCESSES = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
_STATES = st.fixed_dictionaries(
    {
        "numbers": st.dictionaries(st.sampled_from(_NUMBERS), _WORDS, max_size=12),
        "fields": st.lists(_FIELDS, max_size=12),
        "rules": st.lists(_RULES, max_size=3),
        "processes": st.lists(_PROCESSES, max_size=20),
        "temperature": st.integers(-(2**31), 2**31 - 1),
        "events": st.lists(st.tuples(st.integers(0, 2), _WORDS), max_size=5),
        "count": st.integers(0, 3),
    }
)


def script(machine: Machine, state: dict) -> None:
    driver, gpu = machine.driver, machine.driver.gpu(0)
    for name, value in state["numbers"].items():
        setattr(gpu, name, value)
    for identity, kind, raw, code in state["fields"]:
        driver.field(0, identity, int.from_bytes(raw, "little"), code=code)
        next(one for one in gpu.field if one.id == identity).type = kind
    gpu.processes = 0
    for pid, sm, memory in state["processes"]:
        driver.run(0, pid, memory=memory, sm=sm)
    gpu.temperature = state["temperature"]
    driver.no_rules()
    for call, code, index in state["rules"]:
        driver.rule(call, code=code, gpu=index)
    for index, data in state["events"]:
        driver.emit(index, data)
    driver.state.count = state["count"]


# No shrinking: a failing script is short enough to read, and takes minutes to get shorter.
@settings(
    max_examples=60,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(first=_STATES, second=_STATES)
def test_any_state_gives_a_page_that_parses(machine: Machine, first: dict, second: dict):
    machine.driver.reset()
    machine.start(profile="full")
    for state in (first, second, first):
        script(machine, state)
        machine.run(after=11)
        seen = set()
        for name, rows in machine.rows.items():
            family = machine.families[name]
            for row in rows:
                assert (name, row.labels) not in seen
                seen.add((name, row.labels))
                assert len(row.labels) == len(family.labels)
                assert all(row.labels)
                if isinstance(row.value, Histogram):
                    continue
                assert math.isfinite(row.value)
                assert row.value >= 0 or family.kind != "counter"
                # Sums over processes, each of which uses all of it at most.
                assert row.value <= 20 or not name.endswith("_ratio")
        assert list(text_string_to_metric_families(machine.page()))
        assert "llmdiag_nvml_up" in machine.rows
        assert set(machine.failed) <= {one.name for one in machine.collectors} - {"identity"}


@pytest.mark.parametrize("code", [1, 9, 15, 18, 999])
def test_no_error_of_any_call_ends_the_pass(machine: Machine, code: int):
    machine.run()
    called = sorted(machine.fleet.library.statistics.calls)
    for call in called:
        for suffix in ("", "_v2", "_v3"):
            machine.driver.rule(call + suffix, code=code)
        machine.run(after=15)
        assert "llmdiag_nvml_up" in machine.rows, call
        machine.driver.no_rules()
        machine.run(after=15)
        machine.run(after=15)
        assert machine.series("gpu_visible")[()] == 8, call
