"""The simulator's cost model, fitted to a recording's requests, and the recording replayed through it.

    fit(observations(bundle), chunk_tokens=512) -> Fit
    replay(bundle, fit, settings) -> Plan

Prefill comes from the time to first token of requests that met nobody, decode from the mean inter-token
time by the sequences, contexts and prefills that ran beside it. Both are least absolute relative
errors, so that a hiccup of the host does not bend a line, and no coefficient may be negative: no work
gives time back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from diag.errors import UsageError
from diag.model import Floats
from diag.simulate.parts import Bundle
from diag.simulate.plan import Machine, Plan, Replica, ScriptedCall, Settings
from diag.simulate.profiles import constant

__all__ = ["Fit", "Observation", "fit", "observations", "replay"]

_ROUNDS = 30
_LEAST = 20  # requests, below which three coefficients are guesswork
_CALM_RATIO = 0.2  # share of a request's decode time that others' prefills may take


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished request. Times in seconds since the window's start; ``cached_tokens``: of the prompt, not
    computed."""

    session: str
    tenant: str
    sent: float
    first_token: float
    ended: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def computed_tokens(self) -> int:
        """What prefill had to work on."""
        return max(self.prompt_tokens - self.cached_tokens, 1)

    @property
    def pairs(self) -> float:
        """(query, key) pairs that prefill attended: each computed token sees all before it."""
        return self.computed_tokens * (self.cached_tokens + self.computed_tokens / 2)

    def steps(self, chunk_tokens: int) -> int:
        """How many steps its prefill takes at ``chunk_tokens`` each."""
        return math.ceil(self.computed_tokens / chunk_tokens)


@dataclass(frozen=True, slots=True)
class Fit:
    """``front_seconds``: what a request spends before its first step. ``…_error_ratio``: median absolute
    relative error on the requests fitted to, ``…_requests`` many."""

    machine: Machine
    front_seconds: float
    ttft_error_ratio: float
    ttft_requests: int
    inter_token_error_ratio: float
    inter_token_requests: int

    def ttft_seconds(
        self, prompt_tokens: float, cached_tokens: float = 0.0, chunk_tokens: int = 2048
    ) -> float:
        """Of a request that meets nobody."""
        computed = max(prompt_tokens - cached_tokens, 1.0)
        machine = self.machine
        return (
            self.front_seconds
            + math.ceil(computed / chunk_tokens) * (machine.overhead_seconds + machine.prefill_base_seconds)
            + computed * machine.prefill_token_seconds
            + computed * (cached_tokens + computed / 2) * machine.prefill_pair_seconds
        )


def observations(bundle: Bundle) -> tuple[Observation, ...]:
    """The finished requests of a bundle, by time sent; those without a first token are left out."""
    start, found = bundle.window.start, []
    for record in bundle.requests:
        if record.get("status") != "ok" or not record.get("ttft_seconds"):
            continue
        sent = float(record["ts"]) - start
        found.append(
            Observation(
                session=str(record.get("session") or record.get("request_id")),
                tenant=str(record.get("tenant") or "t-a"),
                sent=sent,
                first_token=sent + float(record["ttft_seconds"]),
                ended=sent + float(record["duration_seconds"]),
                prompt_tokens=int(record["prompt_tokens"]),
                cached_tokens=int(record.get("cached_tokens") or 0),
                output_tokens=int(record["output_tokens"]),
            )
        )
    return tuple(sorted(found, key=lambda one: one.sent))


def fit(requests: Sequence[Observation], chunk_tokens: int, *, name: str = "fitted") -> Fit:
    """Machine and front time that explain ``requests``; ``chunk_tokens``: most prompt tokens a step takes.

    Raises:
        UsageError: fewer than 20 requests met nobody, or fewer than 20 decoded calmly.
    """
    alone = [one for one, met in zip(requests, _met(requests), strict=True) if met == 0]
    _enough(len(alone), "met no other one")
    rough, _ = _prefill(alone, 0.0, chunk_tokens)
    decode, inter_token_error, calm = _decode(requests, rough, chunk_tokens)
    # What a step with a prefill costs its neighbours beyond the tokens is in the engine; the rest of a first
    # token's fixed time passes before.
    inside = min(float(decode[3]), float(rough[0]))
    prefill, ttft_error = _prefill(alone, inside, chunk_tokens)
    # A step's fixed part is in both; what a decode step alone has of it is not told apart: half.
    overhead = min(inside, float(decode[0]) / 2)
    machine = Machine(
        name=name,
        overhead_seconds=overhead,
        prefill_base_seconds=inside - overhead,
        prefill_token_seconds=float(prefill[1]),
        prefill_pair_seconds=float(prefill[2]),
        decode_base_seconds=float(decode[0]) - overhead,
        decode_sequence_seconds=float(decode[1]),
        decode_context_seconds=float(decode[2]),
    )
    return Fit(machine, float(prefill[0]), ttft_error, len(alone), inter_token_error, calm)


def replay(bundle: Bundle, fitted: Fit, settings: Settings, *, kv_bytes_per_token: float = 131_072.0) -> Plan:
    """The recorded sessions and lengths, sent to one simulated engine with ``settings``. First turns come
    when they were recorded; a later one as long after the answer before it as in the recording, since its
    client waited for that."""
    window = bundle.window
    machine = replace(fitted.machine, kv_bytes_per_token=kv_bytes_per_token)
    replica = Replica(
        "vllm-0:8000", settings=settings, machine=machine, front_seconds=constant(fitted.front_seconds)
    )
    return Plan(
        name=f"replay-{bundle.name}",
        seed=0,
        seconds=window.end - window.start,
        step_seconds=float(bundle.meta["step_seconds"]),
        start=window.start,
        replicas=(replica,),
        clients=(),
        script=_script(observations(bundle)),
        notes=f"Arrivals and lengths of the recording {bundle.name}, served by a fitted machine.",
    )


def _script(requests: Sequence[Observation]) -> tuple[ScriptedCall, ...]:
    """A turn's history is what the session's turn before it held, if the prompt is longer than that."""
    head = _shared_head(requests)
    held: dict[str, tuple[int, int, float]] = {}
    calls = []
    for one in requests:
        turn, before, ended = held.get(one.session, (0, 0, math.inf))
        history = max(before - head, 0) if before <= one.prompt_tokens else 0
        calls.append(
            ScriptedCall(
                time=one.sent,
                prompt_tokens=one.prompt_tokens,
                output_tokens=one.output_tokens,
                tenant=one.tenant,
                session=one.session,
                turn=turn,
                head_tokens=min(head, one.prompt_tokens),
                history_tokens=history,
                think_seconds=max(one.sent - ended, -1.0),
            )
        )
        held[one.session] = (turn + 1, one.prompt_tokens + one.output_tokens, one.ended)
    return tuple(calls)


def _shared_head(requests: Sequence[Observation]) -> int:
    """What first turns find in the cache: only what all sessions share can be there (tokens)."""
    seen: set[str] = set()
    first = []
    for one in requests:
        if one.session not in seen:
            seen.add(one.session)
            first.append(one.cached_tokens)
    return int(np.median(first)) if first else 0


def _met(requests: Sequence[Observation]) -> Floats:
    """How many others were in flight when each was sent, or came before its first token; shape (n,)."""
    sent = np.array([one.sent for one in requests])
    first = np.array([one.first_token for one in requests])
    ended = np.array([one.ended for one in requests])
    beside = (sent[None, :] < first[:, None]) & (ended[None, :] > sent[:, None])
    return np.asarray(beside.sum(axis=1) - 1, dtype=np.float64)


def _prefill(alone: Sequence[Observation], step_seconds: float, chunk_tokens: int) -> tuple[Floats, float]:
    """(intercept, per computed token, per pair) in seconds, ``step_seconds`` a step not counted, and the
    median error."""
    columns = np.array([(1.0, one.computed_tokens, one.pairs) for one in alone])
    target = np.array([one.first_token - one.sent for one in alone])
    steps = np.array([one.steps(chunk_tokens) for one in alone])
    return _least_relative(columns, target, step_seconds * steps)


def _decode(requests: Sequence[Observation], prefill: Floats, chunk_tokens: int) -> tuple[Floats, float, int]:
    """(intercept, per sequence, per context token, per prefill step meanwhile) of a step, in seconds, the
    median error, and of how many requests."""
    rows, targets = [], []
    spans = np.array([(one.first_token, one.ended) for one in requests])
    contexts = np.array([one.prompt_tokens + one.output_tokens / 2 for one in requests])
    work = np.array([prefill[1] * one.computed_tokens + prefill[2] * one.pairs for one in requests])
    steps = np.array([one.steps(chunk_tokens) for one in requests])
    for index, one in enumerate(requests):
        length = one.ended - one.first_token
        if one.output_tokens < 8 or length <= 0:
            continue
        shared = np.minimum(spans[:, 1], one.ended) - np.maximum(spans[:, 0], one.first_token)
        share = np.clip(shared, 0.0, None) / length
        begun = (spans[:, 0] > one.first_token) & (spans[:, 0] <= one.ended)
        begun[index] = False
        stolen = float(work[begun].sum())
        if stolen > _CALM_RATIO * length:
            continue
        prefills = float(steps[begun].sum()) / (one.output_tokens - 1)
        rows.append((1.0, float(share.sum()), float(share @ contexts), prefills))
        targets.append((length - stolen) / (one.output_tokens - 1))
    _enough(len(rows), "decoded without long prefills beside them")
    columns, target = np.array(rows), np.array(targets)
    coefficients, error = _least_relative(columns, target, np.zeros(len(rows)))
    return coefficients * _lost(columns @ coefficients, target), error, len(rows)


def _lost(fitted: Floats, target: Floats) -> float:
    """How much longer all of it took than the fitted lines say: a hiccup does not bend a line, but it takes
    its time, and queues are made of that. What took over twice as long was something else (a preemption)."""
    usual = (target < 2 * fitted) & (target > 0.5 * fitted)
    return float(target[usual].sum() / fitted[usual].sum()) if usual.any() else 1.0


def _least_relative(columns: Floats, target: Floats, known: Floats) -> tuple[Floats, float]:
    """Coefficients >= 0 of ``target - known`` with the least sum of absolute errors relative to ``target``,
    and the median of those.

    Iteratively reweighted least squares; a coefficient that turns negative leaves the model."""
    kept = list(range(columns.shape[1]))
    scaled, wanted = columns / target[:, None], 1 - known / target
    while True:
        weights: Floats = np.ones(target.shape)
        part: Floats = np.zeros(len(kept))
        for _ in range(_ROUNDS):
            root = np.sqrt(weights)
            found = np.linalg.lstsq(scaled[:, kept] * root[:, None], wanted * root, rcond=None)[0]
            part = np.asarray(found, np.float64)
            weights = 1 / np.maximum(np.abs(scaled[:, kept] @ part - wanted), 1e-3)
        if part.min() >= 0 or len(kept) == 1:
            break
        kept.pop(int(np.argmin(part * scaled[:, kept].mean(axis=0))))
    result = np.zeros(columns.shape[1])
    result[kept] = np.maximum(part, 0.0)
    return result, float(np.median(np.abs(scaled @ result - wanted)))


def _enough(count: int, text: str) -> None:
    if count < _LEAST:
        raise UsageError(
            f"only {count} requests {text}: too few to fit a machine", hint=f"give at least {_LEAST}"
        )
