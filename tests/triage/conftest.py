"""Recordings as cases, with the label taken out, to be turned over by the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from diag.api import gather, open_bundle
from diag.model import Case, Series, Verdict
from diag.renderers import render
from diag.simulate import OVERLAID, load, overlaid, save
from diag.sources.protocol import Question
from diag.triage import triage

NOW = 1_796_000_000.0


@pytest.fixture(scope="session")
def recorded(incidents: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """The case of a recording or of an overlaid incident, by name."""

    @cache
    def get(name: str) -> Case:
        bundle = overlaid(name) if name in OVERLAID else load(incidents / name)
        folder = save(bundle.with_meta(label=None, notes=""), tmp_path_factory.mktemp("case"))
        return gather([open_bundle(folder)], Question(now=NOW))

    return get


_RESTING = (
    "node_infiniband_link_downs_per_second",
    "kv_transfer_failures_per_second",
    "kv_lookup_misses_per_second",
)


@pytest.fixture(scope="session")
def everything(recorded: Callable[[str], Case]) -> Case:
    """The reference recording with simulated GPUs, and with tenants and a calm host made up here: every
    hypothesis can be judged."""
    case = recorded("context_growth_gpu")
    assert case.requests is not None
    times = case.of("running_requests")[0].times
    busy, rests = 0.3 + 0.01 * np.sin(np.arange(len(times))), np.zeros(len(times))
    engine = case.of("running_requests")[0].labels["instance"]
    host = Series("node_cpu_busy_ratio", {"node": "node-0"}, times, busy, "test")
    tenants = np.where(np.arange(len(case.requests)) % 3 == 0, "one", "two")
    calm = (
        Series("node_numa_remote_ratio", {"node": "node-0"}, times, 0.1 * busy, "test"),
        *(
            Series(
                name,
                {"node": "node-0"} if name.startswith("node") else {"instance": engine},
                times,
                rests,
                "test",
            )
            for name in _RESTING
        ),
    )
    series = {**case.series, host.signal: (host,), **{one.signal: (one,) for one in calm}}
    return replace(case, series=series, requests=case.requests.assign(tenant=tenants))


@pytest.fixture(scope="session")
def told() -> Callable[[Case], str]:
    """The verdict on a case as its JSON text."""

    def tell(case: Case) -> str:
        verdict: Verdict = triage(case, now=NOW, version="1.2.3")
        return render(verdict, "json")

    return tell
