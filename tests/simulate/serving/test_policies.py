"""Each policy's order, and what bounds a batch."""

from __future__ import annotations

import pytest

from diag.simulate.observed import Call
from diag.simulate.plan import Machine, Policy, Settings
from diag.simulate.serving.loop import Loop
from diag.simulate.serving.queueing import TokenCounter
from diag.simulate.serving.replica import Replica
from diag.simulate.serving.sequences import Phase, Sequence


class Order:
    """Lets sequences through one slot and notes in which order they came."""

    def __init__(self, policy: Policy, **flags: int) -> None:
        self.loop = Loop(0.0)
        settings = Settings(policy=policy, max_num_seqs=flags.pop("max_num_seqs", 1), **flags)  # type: ignore[arg-type]
        self.replica = Replica("r", Machine(), settings, self.loop, self)
        self.ended: list[str] = []

    def on_end(self, sequence: Sequence) -> None:
        self.ended.append(sequence.call.session)

    def ask(
        self, name: str, prompt: int = 100, answer: int = 50, tenant: str = "t", priority: int = 0,
        time: float = 0.0, adapter: str = "",
    ) -> None:  # fmt: skip
        number = self.loop._asked
        call = Call(number, tenant, name, 0, "r", prompt, 0, 0, time, adapter=adapter)
        sequence = Sequence(call, answer, number)
        sequence.priority = priority
        self.loop.at(time, self.replica.enqueue, sequence)

    def run(self) -> list[str]:
        self.loop.run(1000.0)
        return self.ended


def test_first_come_first_served() -> None:
    order = Order(Policy.FCFS)
    for name, prompt in (("a", 900), ("b", 500), ("c", 100)):
        order.ask(name, prompt)
    assert order.run() == ["a", "b", "c"]


def test_the_lowest_priority_number_goes_first() -> None:
    order = Order(Policy.PRIORITY)
    for name, priority in (("runs", 9), ("a", 5), ("b", 0), ("c", 5)):
        order.ask(name, priority=priority)
    assert order.run() == ["runs", "b", "a", "c"]


def test_the_shortest_prompt_goes_first() -> None:
    order = Order(Policy.SHORTEST)
    for name, prompt in (("runs", 50), ("a", 900), ("b", 500), ("c", 100)):
        order.ask(name, prompt)
    assert order.run() == ["runs", "c", "b", "a"]


def test_the_tenant_served_least_goes_first() -> None:
    order = Order(Policy.TOKEN_COUNTER)
    for number in range(6):
        order.ask(f"greedy-{number}", tenant="greedy")
    order.ask("modest-0", tenant="modest", time=0.1)
    order.ask("modest-1", tenant="modest", time=0.1)
    ended = order.run()
    assert ended[0] == "greedy-0"
    assert ended.index("modest-1") <= 4


def _waiting(tenant: str, number: int) -> Sequence:
    sequence = Sequence(Call(number, tenant, "s", 0, "r", 100, 0, 0, 0.0), 10, number)
    sequence.phase = Phase.WAITING
    return sequence


def test_a_tenant_that_was_away_saved_up_nothing() -> None:
    queue = TokenCounter()
    queue.push(_waiting("busy", 0))
    queue.charge("busy", 5000, 0)
    queue.push(_waiting("back", 1))
    assert queue.counters["back"] == queue.counters["busy"] == 5000


def test_a_token_counter_weighs_answers_twice() -> None:
    queue = TokenCounter()
    queue.charge("a", 100, 50)
    assert queue.counters["a"] == 200


@pytest.mark.parametrize(("adapters", "together"), [("aabb", 4), ("abcd", 2)])
def test_no_more_adapters_run_than_have_slots(adapters: str, together: int) -> None:
    order = Order(Policy.FCFS, max_num_seqs=8, max_loras=2)
    for number, adapter in enumerate(adapters):
        order.ask(f"s{number}", adapter=adapter)
    order.loop.run(0.2)
    work = order.replica.work
    assert len(work.running) == together
    assert work.deferred == 4 - together
    assert len(order.run()) == 4


def test_held_slots_are_no_slots() -> None:
    order = Order(Policy.FCFS, max_num_seqs=8)
    order.replica.work.outside.held_slots = 6
    for number in range(8):
        order.ask(f"s{number}")
    order.loop.run(0.2)
    assert (len(order.replica.work.running), order.replica.work.deferred) == (2, 6)


def test_unchunked_prompts_stop_the_batch() -> None:
    """A long prompt makes everybody's next token late without chunks, and a little late with them."""
    worst = {}
    for chunked in (True, False):
        order = Order(Policy.FCFS, max_num_seqs=8, chunked_prefill=chunked, max_num_batched_tokens=512)
        order.ask("decodes", answer=400)
        order.ask("long", prompt=20_000, answer=2, time=1.0)
        order.run()
        gaps = order.replica.tally.histograms["inter_token_seconds"]
        worst[chunked] = max(bound for bound, count in zip(gaps.bounds, gaps.counts, strict=False) if count)
    assert worst[True] <= 0.1
    assert worst[False] >= 1.0
