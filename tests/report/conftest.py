"""Verdicts to write up: a shipped recording, and one in which every text is hostile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diag import api
from diag.exhibits import Curve, Exhibit, Mark, Panel
from diag.model import Lead, Moment, SourceRef, Verdict

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</svg></figure><h1>gone</h1>",
    "[x](javascript:alert(1))",
    "`code` | pipe | *bold*",
    "\x1b[31mred\x1b[0m\x07",
    "\u202etxt.exe\u2066",
    "{{ 7*7 }}",
    "<!-- /human:well --><!-- human:tasks -->",
    "$\\frac{1}{0}$",
    "A" * 10_000,
)


@pytest.fixture(scope="session")
def recorded() -> Verdict:
    """The shipped incident that the project started from."""
    return api.demo("context_growth")


@pytest.fixture(scope="session")
def hostile(recorded: Verdict) -> Verdict:
    """The same, with hostile strings wherever a label, tenant, model, log line or event could put one."""
    lead = recorded.assessments[0]
    chart = Exhibit(
        "chain",
        HOSTILE[0],
        HOSTILE[2],
        "time",
        (Panel(HOSTILE[9], HOSTILE[1], (Curve(HOSTILE[4], (0.0, 60.0, 120.0), (1.0, None, 2.0)),)),),
        (Mark(60.0, "onset", HOSTILE[5]),),
    )
    return replace(
        recorded,
        summary=" ".join(HOSTILE[:9]),
        source=(SourceRef("bundle", HOSTILE[0]),),
        assessments=(
            replace(lead, scope={"tenants": HOSTILE, HOSTILE[1]: ("x",)}),
            *recorded.assessments[1:],
        ),
        timeline=tuple(Moment(recorded.generated_at, HOSTILE[0], text) for text in HOSTILE),
        leads=(Lead(HOSTILE[0], {HOSTILE[1]: HOSTILE[2]}, 1.0, 2.0, HOSTILE[4], HOSTILE[5]),),
        notes=HOSTILE,
        exhibits=(chart,),
        names={"tenants": HOSTILE[:3]},
    )
