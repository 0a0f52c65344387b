"""Fewer draft tokens are accepted: speculation costs what it cost, and gives less.

A step still verifies the same drafts but yields fewer tokens. The engine's inter-token histogram counts
steps, so the harm shows in the time per token of whole answers first."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import Explained, Reach, falls, stated
from diag.detectors.service import demand_of, slower
from diag.detectors.view import View
from diag.detectors.whom import instances_moved
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="spec_decode_collapse",
    title="Draft tokens are no longer accepted",
    mechanism="Each step drafts and verifies several tokens; when fewer are accepted (other content, another draft model, a state bug that grows with uptime), a step yields fewer tokens for the same time.",
    signs=("acceptance ratio or accepted length down", "time per token of whole answers up at the same batch", "a restart restores it, if it decays with uptime"),
    rules_out=("acceptance flat", "speculation is off"),
    look_alikes={"cuda_graph_gap": "steps get longer, acceptance stays", "config_change": "another draft model or number of drafts", "long_outputs": "answers have more tokens, each as fast as before"},
    mitigations=(
        Mitigation("Replay one fixed prompt set: does acceptance fall on the same traffic, and is it back after a restart?", True),
        Mitigation("Turn speculation off, or draft fewer tokens, until it is understood; needs a restart.", False),
    ),
    next_check="Compare accepted / draft tokens per position before and now, on the same prompts.",
    chain=("spec_decode_acceptance_ratio", "spec_decode_accepted_length_tokens", "inter_token_seconds_mean", "decode_seconds_mean", "e2e_seconds_mean"),
)  # fmt: skip

NEEDS = (("spec_decode_acceptance_ratio", "spec_decode_accepted_length_tokens", "fact:speculative_decoding"),)


def examine(view: View) -> Iterator[Output]:
    """Acceptance, the time per token, and whether clients ask for something else."""
    ratio, length = (
        view.fleet.get(n) for n in ("spec_decode_acceptance_ratio", "spec_decode_accepted_length_tokens")
    )
    if ratio is None and length is None:
        off = view.fact("speculative_decoding") == "off"
        text = "speculative decoding is off" if off else "speculation is on, but its counters are not there"
        yield stated(
            "acceptance",
            "spec_decode_acceptance_ratio",
            False,
            text,
            decisive=off,
            degree=0.0 if off else 0.5,
        )
        return
    if ratio is not None:
        yield falls("acceptance", ratio, "share of draft tokens accepted")
    if length is not None:
        yield falls("accepted_length", length, "tokens per verified draft")
    drafted = ("spec_decode_acceptance_ratio", "spec_decode_accepted_length_tokens")
    yield Reach({"instances": instances_moved(view, drafted, -1)})
    speed = _pace(view)
    if speed is not None:
        text = f"time per token ×{speed[0]:.2f} ({speed[1]})"
        yield stated("slower", "decode_seconds_mean", speed[0] >= 1.15, text)
    demand = demand_of(view)
    if demand.known >= 2:
        text = f"demand rose: {', '.join(demand.moved)}" if demand.moved else "demand did not rise"
        yield stated("demand_flat", "arrivals_per_second", not demand.moved, text, degree=1 - demand.degree)
    queue = view.phases.share("queue")
    if queue is not None and speed is not None and speed[0] >= 1.15:
        yield Explained(queue)


def _pace(view: View) -> tuple[float, str] | None:
    """How many times longer a token of a whole answer takes; a step is no token here."""
    decode, tokens = view.fleet.get("decode_seconds_mean"), view.fleet.get("output_tokens_per_request_mean")
    seen = slower(view)
    if seen is not None and seen[1].startswith("request records"):
        return seen
    if decode is not None and tokens is not None and min(decode.before, tokens.before, tokens.during) > 0:
        ratio = (decode.during / decode.before) * (tokens.before / tokens.during)
        return ratio, f"decode time of finished requests over their {quantity(tokens.during, 'tokens')}"
    return seen
