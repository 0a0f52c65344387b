"""Models on their GPUs as cost models, and how much traffic one replica of them carries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from diag.simulate.plan import Client, Lengths, Machine, Plan, Settings

__all__ = [
    "MACHINES", "Work", "capacity_per_second", "drafting", "in_flight", "load_ratio", "mean_tokens",
    "offered_per_second", "running", "slower", "token_seconds", "work",
]  # fmt: skip

MACHINES: dict[int, tuple[Machine, ...]] = {
    1: (
        Machine("llama-3.1-8b", 0.005, 110e-6, 5e-9, 0.018, 0.00040, 6e-8, 131_072.0),
        Machine("qwen2.5-14b", 0.006, 150e-6, 6e-9, 0.024, 0.00045, 8e-8, 196_608.0),
    ),
    2: (
        Machine("yi-34b", 0.006, 170e-6, 6e-9, 0.027, 0.00050, 7e-8, 245_760.0),
        Machine("qwen2.5-32b", 0.006, 160e-6, 6e-9, 0.026, 0.00048, 7e-8, 262_144.0),
    ),
    4: (
        Machine("llama-3.1-70b", 0.007, 190e-6, 6e-9, 0.028, 0.00050, 6e-8, 327_680.0),
        Machine("qwen2.5-72b", 0.007, 210e-6, 7e-9, 0.030, 0.00055, 6e-8, 327_680.0),
    ),
}
"""By tensor-parallel size. Not fitted to one system: orders of magnitude of 16-bit models on cards of the
A100 and L40S classes, where an incident of an hour is some thousand requests."""

_DRAFT_RATIO = 0.05  # of a decode step, for each drafted token
_BATCH = 48  # beyond it a decode step is too slow for a chat, whatever more it could carry


@dataclass(frozen=True, slots=True)
class Work:
    """Means over requests, in tokens: ``computed`` of the prompt, ``context`` while it runs, ``output``."""

    requests_per_second: float
    computed: float
    context: float
    output: float

    def prefill_seconds(self, machine: Machine) -> float:
        """Of one request, alone on the GPU."""
        pairs = self.computed * max(self.context - self.output / 2 - self.computed / 2, self.computed / 2)
        return self.computed * machine.prefill_token_seconds + pairs * machine.prefill_pair_seconds

    def sequence_seconds(self, machine: Machine) -> float:
        """What one more sequence adds to a decode step."""
        return machine.decode_sequence_seconds + self.context * machine.decode_context_seconds


def mean_tokens(lengths: Lengths) -> float:
    """Mean of the log-normal, its cuts not counted, but never beyond them."""
    mean = lengths.median * float(np.exp(lengths.sigma**2 / 2))
    return float(min(max(mean, lengths.least), lengths.most))


def slower(machine: Machine, factor: float) -> Machine:
    """The same model on cards that need ``factor`` times as long for everything."""
    return replace(
        machine,
        prefill_token_seconds=machine.prefill_token_seconds * factor,
        prefill_pair_seconds=machine.prefill_pair_seconds * factor,
        decode_base_seconds=machine.decode_base_seconds * factor,
        decode_sequence_seconds=machine.decode_sequence_seconds * factor,
        decode_context_seconds=machine.decode_context_seconds * factor,
    )


def drafting(machine: Machine, settings: Settings, acceptance_ratio: float = 0.75) -> Machine:
    """The machine as it decodes with the drafts of ``settings``: dearer steps that give several tokens."""
    drafted = settings.speculative_tokens
    tokens = 1.0 + sum(acceptance_ratio**place for place in range(1, drafted + 1))
    factor = (1.0 + _DRAFT_RATIO * drafted) / tokens
    return replace(
        machine,
        decode_base_seconds=machine.decode_base_seconds * factor,
        decode_sequence_seconds=machine.decode_sequence_seconds * factor,
        decode_context_seconds=machine.decode_context_seconds * factor,
    )


def work(clients: Iterable[Client], caching: bool, time: float = 0.0) -> Work:
    """What all clients together ask for at ``time``, before anything waits."""
    rows = [_work_of(client, caching, time) for client in clients]
    rate = sum(row.requests_per_second for row in rows)
    shares = [row.requests_per_second / rate if rate else 0.0 for row in rows]
    return Work(
        rate,
        sum(share * row.computed for share, row in zip(shares, rows, strict=True)),
        sum(share * row.context for share, row in zip(shares, rows, strict=True)),
        sum(share * row.output for share, row in zip(shares, rows, strict=True)),
    )


def _work_of(client: Client, caching: bool, time: float) -> Work:
    turns = mean_tokens(client.turns)
    message = mean_tokens(client.message_tokens) * client.prompt_factor.at(time)
    output = mean_tokens(client.output_tokens) * client.output_factor.at(time)
    history = min((turns - 1.0) / 2.0 * (message + output), client.history_limit_tokens.at(time))
    stable = client.head_stable_ratio.at(time)
    computed = message + (1.0 - stable if caching else 1.0) * (client.head_tokens + history)
    context = client.head_tokens + history + message + output / 2.0
    return Work(client.sessions_per_second.at(time) * turns, computed, context, output)


def offered_per_second(plan: Plan, time: float = 0.0) -> float:
    """Requests a second that all clients together send at ``time``."""
    return work(plan.clients, True, time).requests_per_second


def capacity_per_second(machine: Machine, settings: Settings, asked: Work) -> float:
    """Requests a second that one replica can serve for ever, at a batch of 48 or ``max_num_seqs``.

    A request costs its prefill and, for each output token, its share of a decode step."""
    machine, batch = drafting(machine, settings), min(_BATCH, settings.max_num_seqs)
    step = (machine.overhead_seconds + machine.decode_base_seconds) / batch + asked.sequence_seconds(machine)
    return 1.0 / (asked.prefill_seconds(machine) + asked.output * step)


def load_ratio(plan: Plan, time: float = 0.0) -> float:
    """Offered requests over what all replicas can serve together: 1 is the edge of overload."""
    caching = all(replica.settings.prefix_caching for replica in plan.replicas)
    asked = work(plan.clients, caching, time)
    room = sum(capacity_per_second(replica.machine, replica.settings, asked) for replica in plan.replicas)
    return asked.requests_per_second / room


def running(machine: Machine, asked: Work, requests_per_second: float) -> float:
    """Mean number of sequences in one replica's batch at that rate: what is left of the time after prefills
    goes to decode steps, and these must make as many tokens as are asked for."""
    free = 1.0 - min(requests_per_second * asked.prefill_seconds(machine), 0.9)
    tokens = requests_per_second * asked.output
    slack = max(free - tokens * asked.sequence_seconds(machine), 0.05)
    return tokens * (machine.overhead_seconds + machine.decode_base_seconds) / slack


def in_flight(plan: Plan, time: float = 0.0) -> float:
    """Mean number of requests at work in all replicas at ``time``, when nothing makes them wait."""
    asked = work(plan.clients, all(r.settings.prefix_caching for r in plan.replicas), time)
    rate = asked.requests_per_second / len(plan.replicas)
    prefilling = rate * asked.prefill_seconds(plan.replicas[0].machine)
    return sum(
        running(drafting(replica.machine, replica.settings), asked, rate) + prefilling
        for replica in plan.replicas
    )


def token_seconds(plan: Plan, time: float = 0.0) -> float:
    """Mean time between two tokens of one answer at ``time``, by Little's law."""
    asked = work(plan.clients, all(r.settings.prefix_caching for r in plan.replicas), time)
    return in_flight(plan, time) / (asked.requests_per_second * asked.output)
