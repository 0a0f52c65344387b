"""Hand-built verdicts: what renderers do must not depend on what triage thinks today."""

from __future__ import annotations

import pytest

from diag.model import (
    Assessment,
    ChainLink,
    Coverage,
    Evidence,
    Lead,
    Missing,
    Mitigation,
    Moment,
    SourceRef,
    Stance,
    State,
    Symptom,
    Verdict,
    Window,
)

ONSET = 1795985842.0
_NO_GPU = (
    "no GPU exporter is scraped: run diag-exporter gpu (or dcgm-exporter, nvidia_gpu_exporter) "
    "on the GPU nodes"
)


def _evidence(stance: Stance, weight: float, text: str, **numbers: float | str | None) -> Evidence:
    degree = 1.0 if stance is Stance.FOR else 0.0
    return Evidence("cue", "signal", stance, degree, text, weight=weight, **numbers)  # type: ignore[arg-type]


def _assessment(id: str, state: State, rank: int, confidence: float = 0.0, **parts: object) -> Assessment:
    given: dict[str, object] = {
        "title": f"title of {id}",
        "scope": {},
        "onset": None,
        "explained_share": None,
        "explained_by": None,
        "chain": (),
        "evidence": (),
        "missing": (),
        "mitigations": (),
        "next_check": "",
        "runbook": f"runbooks/{id}.md",
    }
    return Assessment(id=id, state=state, rank=rank, confidence=confidence, **(given | parts))  # type: ignore[arg-type]


def _leading() -> Assessment:
    return _assessment(
        "context_growth",
        State.SUPPORTED,
        1,
        0.94,
        title="Clients resend a growing history",
        scope={"sessions": tuple(f"old-{n}" for n in range(7)), "instances": ("127.0.0.1:8000",)},
        onset=ONSET,
        explained_share=0.91,
        chain=(
            ChainLink("prompt_tokens_per_request_mean", ONSET, "prompt length 3.5k → 92k tokens"),
            ChainLink("kv_cache_usage_ratio", ONSET + 41, "KV pool 40 % → 99.9 % full"),
            ChainLink("ttft_seconds_p95", ONSET + 140.2, "first token 1.5 s → 240 s for old sessions"),
        ),
        evidence=(
            _evidence(Stance.AGAINST, -0.3, "request rate rose by 4 %"),
            _evidence(
                Stance.FOR,
                2.1,
                "prompt length follows session age",
                before=3500.0,
                during=92345.678,
                unit="tokens",
            ),
            _evidence(Stance.FOR, 1.2, "first token follows prompt length on one curve, exponent 2.0"),
        ),
        missing=(Missing("gpu_sm_clock_hertz", _NO_GPU),),
        mitigations=(
            Mitigation("cap --max-model-len at 32768", False),
            Mitigation("ask the sessions listed to start a new chat", True),
        ),
        next_check="log prompt tokens per session for ten minutes and look at their slope",
    )


@pytest.fixture
def incident() -> Verdict:
    """One supported root, one amplifier, one undecided, two ruled out, three that lack GPU series."""
    unseen = ("thermal_throttle", "power_cap", "noisy_neighbour")
    return Verdict(
        version="0.1.0",
        generated_at=ONSET + 600.25,
        source=(SourceRef("bundle", "context_growth_reference"),),
        baseline=Window(ONSET - 68, ONSET),
        incident=Window(ONSET, ONSET + 179),
        summary="Old sessions wait minutes for a first token: their prompts grew from 3.5k to 92k tokens.",
        symptoms=(Symptom("ttft_seconds_p95", {"cohort": "old_sessions"}, 1.5, 240.0, "seconds", ONSET),),
        leading="context_growth",
        assessments=(
            _leading(),
            _assessment(
                "prefix_cache_off",
                State.SUPPORTED,
                2,
                0.97,
                evidence=(_evidence(Stance.FOR, 3.0, "cache_config_info says enable_prefix_caching=False"),),
                mitigations=(Mitigation("start with --enable-prefix-caching", True),),
            ),
            _assessment("kv_cache_exhaustion", State.UNDECIDED, 3, 0.4, explained_by="context_growth"),
            _assessment(
                "load_burst",
                State.RULED_OUT,
                4,
                evidence=(
                    _evidence(Stance.AGAINST, -0.4, "waiting stays at 2"),
                    _evidence(
                        Stance.AGAINST, -4.0, "arrivals are flat", before=1.51, during=1.49, unit="per second"
                    ),
                ),
            ),
            _assessment(
                "network_latency",
                State.RULED_OUT,
                5,
                evidence=(_evidence(Stance.AGAINST, -4.0, "client gap stays below 4 ms"),),
            ),
            *(
                _assessment(
                    id,
                    State.NOT_ASSESSABLE,
                    6 + position,
                    missing=(
                        Missing("x", "something else"),
                        Missing("gpu_sm_clock_hertz", _NO_GPU, needed=True),
                    ),
                )
                for position, id in enumerate(unseen)
            ),
        ),
        timeline=(Moment(ONSET, "prompt_tokens_per_request_mean", "prompt length rises"),),
        leads=(),
        coverage=Coverage(31, 9),
        notes=("one scrape of 120 was lost",),
    )


@pytest.fixture
def healthy() -> Verdict:
    """Nothing wrong for users; one risk stands; one hypothesis is out of sight."""
    return Verdict(
        version="0.1.0",
        generated_at=ONSET,
        source=(SourceRef("prometheus", "http://prometheus:9090"),),
        baseline=Window(ONSET - 3600, ONSET - 1800),
        incident=None,
        summary="First tokens take 29 ms, as before.",
        symptoms=(),
        leading=None,
        assessments=(
            _assessment("prefix_cache_off", State.SUPPORTED, 1, 0.8, title="Prefix caching is off"),
            _assessment(
                "load_burst", State.RULED_OUT, 2, evidence=(_evidence(Stance.AGAINST, -3.0, "1.2/s, flat"),)
            ),
            _assessment(
                "power_cap", State.NOT_ASSESSABLE, 3, missing=(Missing("gpu_power_watts", _NO_GPU, True),)
            ),
        ),
        timeline=(),
        leads=(),
        coverage=Coverage(30, 10),
    )


@pytest.fixture
def unexplained() -> Verdict:
    """A symptom that no hypothesis explains, with a lead."""
    return Verdict(
        version="0.1.0",
        generated_at=ONSET,
        source=(SourceRef("scrape", "http://10.0.0.1:8000/metrics"),),
        baseline=None,
        incident=Window(ONSET, ONSET + 60),
        summary="First tokens take 9 s instead of 1 s and no known cause explains it.",
        symptoms=(Symptom("ttft_seconds_p95", {}, float("nan"), 9.0, "seconds", None),),
        leading="unknown",
        assessments=(
            _assessment(
                "unknown",
                State.SUPPORTED,
                1,
                0.6,
                title="None of the known causes",
                next_check="take a trace",
            ),
        ),
        timeline=(),
        leads=(Lead("steps_per_second", {"instance": "a"}, 12.0, 3.0, "per second", "engine steps fell"),),
        coverage=Coverage(12, 40),
    )
