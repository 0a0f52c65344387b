"""A fitted machine explains the requests it was fitted to, and a replay sends what was recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diag.errors import UsageError
from diag.simulate.fitting import Fit, Observation, fit, observations, replay
from diag.simulate.parts import load
from diag.simulate.plan import Settings

RECORDINGS = Path(__file__).parents[1] / "incidents"
CHUNK = 512

TOKEN, PAIR, FRONT = 30e-6, 6e-9, 0.02
BASE, SEQUENCE, CONTEXT = 0.01, 0.0008, 2e-7


def _one(number: int, sent: float, prompt: int, cached: int, beside: int, scatter: float) -> Observation:
    """A request of a machine with the constants above, in a batch of ``beside`` equal ones."""
    computed, output = prompt - cached, 101
    ttft = FRONT + computed * TOKEN + computed * (cached + computed / 2) * PAIR
    step = BASE + beside * (SEQUENCE + CONTEXT * (prompt + output / 2))
    first = sent + ttft * scatter
    return Observation(f"s{number}", "t", sent, first, first + step * (output - 1), prompt, cached, output)


def _invented(noise: float) -> list[Observation]:
    rng = np.random.default_rng(5)
    found, time = [], 0.0
    for number in range(120):
        prompt = int(rng.integers(200, 30_000))
        cached = prompt // 2 if number % 3 == 0 else 0
        found.append(_one(number, time, prompt, cached, 1, float(np.exp(noise * rng.normal()))))
        time = found[-1].ended + 1.0
    for beside in range(2, 12):  # groups that start together: met, so for the decode side alone
        group = [_one(1000 + beside, time, 3_000, 0, beside, 1.0) for _ in range(beside)]
        found += group
        time = group[-1].ended + 1.0
    return found


def test_a_known_machine_is_found_again() -> None:
    found = fit(_invented(noise=0.0), chunk_tokens=10**9)
    machine = found.machine

    assert machine.prefill_token_seconds == pytest.approx(TOKEN, rel=0.01)
    assert machine.prefill_pair_seconds == pytest.approx(PAIR, rel=0.01)
    assert machine.overhead_seconds + machine.decode_base_seconds == pytest.approx(BASE, rel=0.03)
    assert machine.decode_sequence_seconds == pytest.approx(SEQUENCE, rel=0.1)
    assert machine.decode_context_seconds == pytest.approx(CONTEXT, rel=0.1)
    assert found.front_seconds + machine.overhead_seconds == pytest.approx(FRONT, rel=0.03)
    assert found.ttft_error_ratio < 0.01


def test_a_few_hiccups_do_not_bend_the_line() -> None:
    requests = _invented(noise=0.03)
    late = [
        Observation(
            one.session, one.tenant, one.sent, one.first_token + 3.0, one.ended + 3.0,
            one.prompt_tokens, one.cached_tokens, one.output_tokens,
        ) if number % 15 == 0 else one
        for number, one in enumerate(requests)
    ]  # fmt: skip

    machine = fit(late, chunk_tokens=10**9).machine

    assert machine.prefill_pair_seconds == pytest.approx(PAIR, rel=0.1)


def test_no_work_gives_time_back() -> None:
    backwards = [_one(n, 10.0 * n, 5_000 - 100 * n, 0, 1, 1.0 + n / 10) for n in range(30)]

    machine = fit(backwards, chunk_tokens=CHUNK).machine

    assert min(
        machine.overhead_seconds, machine.prefill_token_seconds, machine.prefill_pair_seconds,
        machine.decode_base_seconds, machine.decode_sequence_seconds, machine.decode_context_seconds,
    ) >= 0.0  # fmt: skip


def test_too_few_requests_are_refused() -> None:
    with pytest.raises(UsageError, match="too few to fit"):
        fit([_one(n, 10.0 * n, 500, 0, 1, 1.0) for n in range(19)], chunk_tokens=CHUNK)


@pytest.fixture(scope="module", params=["load_burst", "context_growth_fast", "context_growth_reference"])
def fitted(request: pytest.FixtureRequest) -> Fit:
    """A recording's machine."""
    return fit(observations(load(RECORDINGS / request.param)), CHUNK)


def test_a_recording_is_explained_to_a_fifth(fitted: Fit) -> None:
    """The host's other core ran something else, and its hiccups are not the model's: half of the requests
    lie within this, and no better is claimed."""
    assert fitted.ttft_error_ratio < 0.20
    assert fitted.inter_token_error_ratio < 0.20


def test_recordings_of_one_model_agree_on_its_attention() -> None:
    pairs = [
        fit(observations(load(RECORDINGS / name)), CHUNK).machine.prefill_pair_seconds
        for name in ("context_growth_fast", "context_growth_reference", "context_growth_cached")
    ]

    assert max(pairs) / min(pairs) < 2.0


def test_a_replay_sends_what_was_recorded() -> None:
    bundle = load(RECORDINGS / "context_growth_fast")
    requests = observations(bundle)
    found = fit(requests, CHUNK)

    plan = replay(bundle, found, Settings(kv_blocks=1100))

    assert [call.time for call in plan.script] == [one.sent for one in requests]
    assert [call.prompt_tokens for call in plan.script] == [one.prompt_tokens for one in requests]
    assert plan.clients == ()
    assert plan.replicas[0].settings.kv_blocks == 1100
    longest = max(plan.script, key=lambda call: call.prompt_tokens)
    before = max(
        (c for c in plan.script if c.session == longest.session and c.turn == longest.turn - 1),
        key=lambda call: call.time,
    )
    assert longest.history_tokens == before.prompt_tokens + before.output_tokens
    assert longest.history_tokens > 8_000
