"""One engine under drawn work: nothing is lost or counted twice, and the fast way is the slow way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from diag.simulate.observed import Call
from diag.simulate.plan import Machine, Policy, Preemption, Settings
from diag.simulate.serving.loop import Loop
from diag.simulate.serving.replica import Replica
from diag.simulate.serving.sequences import Phase, Sequence

SMALL = Settings(kv_blocks=260, max_num_seqs=24, max_num_batched_tokens=512)
SETTINGS = {
    "roomy": Settings(),
    "recompute": SMALL,
    "swap": replace(SMALL, preemption=Preemption.SWAP),
    "uncached": replace(SMALL, prefix_caching=False),
    "chunk_by_chunk": replace(SMALL, reserve_full_isl=False, max_num_batched_tokens=128),
    "whole_prompts": replace(SMALL, chunked_prefill=False),
    "drafted": replace(SMALL, speculative_tokens=3),
    "adapters": replace(SMALL, max_loras=2),
    "shortest": replace(SMALL, policy=Policy.SHORTEST),
    "priority": replace(SMALL, policy=Policy.PRIORITY),
    "counter": replace(SMALL, policy=Policy.TOKEN_COUNTER),
    "long": replace(SMALL, long_prefill_threshold_tokens=100),
}


@dataclass
class Bench:
    """An engine, its work and what came of it."""

    settings: Settings
    single: bool = False
    work: list[Sequence] = field(default_factory=list)
    done: list[Sequence] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = Loop(0.0)
        self.replica = Replica("r", Machine(), self.settings, self.loop, self, single=self.single)

    def on_end(self, sequence: Sequence) -> None:
        self.done.append(sequence)

    def ask(self, time: float, prompt: int, answer: int, session: int, history: int = 0) -> Sequence:
        number = len(self.work)
        call = Call(number, f"t-{session % 3}", f"s{session}", 0, "r", prompt, 48, history, time)
        call.adapter = f"a{session % 4}" if self.settings.max_loras else ""
        sequence = Sequence(call, answer, number)
        sequence.head_key, sequence.session_key = "head", f"s{session}"
        sequence.priority = session % 3
        self.work.append(sequence)
        self.loop.at(time, self._enter, sequence)
        return sequence

    def _enter(self, sequence: Sequence) -> None:
        sequence.call.arrived = sequence.call.queued = self.loop.now
        self.replica.enqueue(sequence)


def crowd(bench: Bench, seed: int, count: int = 150, leaving: float = 0.15) -> None:
    """Sessions that grow, more than fit, some of which leave."""
    rng = np.random.default_rng(seed)
    history = dict.fromkeys(range(12), 0)
    for time in np.cumsum(rng.exponential(0.25, count)).tolist():
        session = int(rng.integers(12))
        message, answer = int(rng.integers(1, 400)), int(rng.integers(1, 200))
        prompt = 48 + history[session] + message
        sequence = bench.ask(time, prompt, answer, session, history[session])
        history[session] = 0 if prompt > 1200 else history[session] + message + answer
        if rng.random() < leaving:
            bench.loop.at(time + float(rng.exponential(2.0)), bench.replica.abort, sequence)


def audit(replica: Replica) -> None:
    """Count the pool's blocks again, from those who hold them."""
    work, size = replica.work, replica.settings.block_size_tokens
    pool = work.pool
    used = pool.leaked + sum(chain.blocks for chain in pool.chains.values() if chain.users)
    for sequence in [*work.running, *work.fetching, *work.ready]:
        tokens = sequence.base + work.decoders.clock if sequence.phase is Phase.DECODE else sequence.allocated
        used += -(-tokens // size) - sequence.head_blocks - sequence.session_blocks
    assert pool.used == used
    assert pool.evictable == sum(chain.blocks for chain in pool.chains.values() if not chain.users)
    assert pool.used >= 0
    assert pool.used + pool.evictable <= pool.size
    assert len(work.running) <= replica.settings.max_num_seqs
    assert work.decoders.count == sum(sequence.phase is Phase.DECODE for sequence in work.running)
    if slots := replica.settings.max_loras:
        assert len({sequence.adapter for sequence in work.running}) <= slots


def drained(settings: Settings, seed: int = 5, *, single: bool = False, audits: bool = False) -> Bench:
    bench = Bench(settings, single)
    crowd(bench, seed)
    if audits:
        for time in np.arange(0.0, 60.0, 0.07).tolist():
            bench.loop.at(time, audit, bench.replica)
    bench.replica.scrape()
    bench.loop.run(4000.0)
    bench.replica.scrape()
    return bench


@pytest.mark.parametrize("name", SETTINGS)
def test_blocks_balance_at_every_moment_and_are_all_free_in_the_end(name: str) -> None:
    bench = drained(SETTINGS[name], audits=True)
    audit(bench.replica)
    work = bench.replica.work
    assert (len(work.running), work.waiting, work.deferred, work.pool.used) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_token_is_counted_once(name: str) -> None:
    bench = drained(SETTINGS[name])
    tally, answered = bench.replica.tally, set(bench.done)
    assert all(sequence.phase is Phase.GONE for sequence in bench.work)
    left = [sequence for sequence in bench.work if sequence not in answered]
    assert 0 < len(left) == tally.finished_abort
    begun = [sequence for sequence in bench.work if sequence.generated > 0]
    assert tally.prompt_tokens == sum(sequence.prompt for sequence in begun)
    assert tally.prompt_tokens == tally.computed_tokens + tally.cached_tokens + tally.external_tokens
    assert tally.generation_tokens == sum(
        sequence.answer_tokens if sequence in answered else sequence.generated for sequence in bench.work
    )
    gaps = tally.histograms["inter_token_seconds"]
    if not SETTINGS[name].speculative_tokens:
        assert sum(gaps.counts) == tally.generation_tokens - len(begun)
    assert sum(tally.histograms["step_tokens"].counts) == tally.steps
    assert sum(tally.histograms["ttft_seconds"].counts) == len(begun)
    assert sum(tally.histograms["e2e_seconds"].counts) == len(bench.done)


@pytest.mark.parametrize("name", ["roomy", "recompute", "swap", "whole_prompts", "counter"])
def test_steps_taken_together_are_those_taken_one_by_one(name: str) -> None:
    together, alone = drained(SETTINGS[name]), drained(SETTINGS[name], single=True)
    assert together.replica.tally.steps == alone.replica.tally.steps
    ends = [[sequence.call.ended for sequence in bench.work] for bench in (together, alone)]
    firsts = [[sequence.call.first_token for sequence in bench.work] for bench in (together, alone)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(firsts[0], firsts[1], rtol=0, atol=1e-6)
    one, other = together.replica.tally.engine("r"), alone.replica.tally.engine("r")
    for counter, rows in one.counters.items():
        np.testing.assert_allclose(rows, other.counters[counter], atol=1e-6, err_msg=counter)
    for histogram, counts in one.histograms.items():
        # A gap that falls on a bound may be rounded to either side of it.
        assert np.abs(counts[-1] - other.histograms[histogram][-1]).sum() <= 2, histogram
        assert one.sums[histogram][-1] == pytest.approx(other.sums[histogram][-1])


def test_a_roomy_pool_preempts_nobody_and_a_small_one_does() -> None:
    assert drained(SETTINGS["roomy"]).replica.tally.preemptions == 0
    small = drained(SETTINGS["recompute"]).replica.tally
    assert small.preemptions > 0
    # What was dropped is computed again, except for what the prefix cache kept of it.
    assert small.prefilled_tokens > small.computed_tokens
    swapped = drained(SETTINGS["swap"]).replica.tally
    assert swapped.preemptions > 0


def test_the_last_admitted_is_the_victim() -> None:
    bench = Bench(replace(SMALL, kv_blocks=40, prefix_caching=False))
    first = bench.ask(0.0, 160, 300, 1)
    second = bench.ask(0.5, 160, 300, 2)
    bench.loop.run(100.0)
    assert first.call.preemptions == 0
    assert second.call.preemptions > 0
    assert first.call.ended < second.call.ended


def test_a_preempted_answer_goes_on_where_it_was() -> None:
    bench = Bench(replace(SMALL, kv_blocks=40, prefix_caching=False))
    bench.ask(0.0, 160, 300, 1)
    second = bench.ask(0.5, 160, 300, 2)
    bench.loop.run(100.0)
    assert second in bench.done
    assert bench.replica.tally.generation_tokens == 600
    assert bench.replica.tally.prompt_tokens == 320
    assert bench.replica.tally.prefilled_tokens > 320


def test_caching_off_asks_nothing_of_the_cache() -> None:
    tally = drained(SETTINGS["uncached"]).replica.tally
    assert (tally.queries_tokens, tally.hits_tokens, tally.cached_tokens) == (0, 0, 0)
    cached = drained(SETTINGS["roomy"]).replica.tally
    assert 0 < cached.hits_tokens < cached.queries_tokens


def test_a_session_finds_its_history_and_not_its_new_message() -> None:
    bench = Bench(Settings())
    bench.ask(0.0, 48 + 500, 100, 1)
    again = bench.ask(60.0, 48 + 600 + 200, 10, 1, history=600)
    stranger = bench.ask(120.0, 48 + 600, 10, 2)
    bench.loop.run(200.0)
    assert again.cached == (48 + 500 + 99) // 16 * 16
    assert stranger.cached == 48


def test_a_prompt_larger_than_the_pool_holds_up_everybody_for_ever() -> None:
    bench = Bench(replace(SMALL, kv_blocks=50))
    bench.ask(0.0, 100, 10, 1)
    bench.ask(1.0, 50 * 16 + 1, 10, 2)
    behind = [bench.ask(2.0 + number, 100, 10, 3 + number) for number in range(5)]
    bench.loop.run(600.0)
    bench.replica.scrape()
    gauges = bench.replica.tally.engine("r").gauges
    assert (gauges["running"][-1], gauges["waiting"][-1], gauges["kv_used_ratio"][-1]) == (0, 6, 0)
    assert all(np.isnan(sequence.call.scheduled) for sequence in behind)


def test_gauges_stand_still_while_no_step_ends() -> None:
    bench = Bench(Settings())
    bench.ask(0.0, 100, 4000, 1)
    bench.loop.at(5.0, bench.replica.block, 60.0)
    for number in range(20):
        bench.ask(6.0 + number, 100, 50, 2 + number)
    for time in (4.9, 30.0, 60.0, 65.6):
        bench.loop.at(time, bench.replica.scrape)
    bench.loop.run(80.0)
    engine = bench.replica.tally.engine("r")
    steps = engine.counters["steps"]
    assert list(engine.gauges["running"]) == [1, 1, 1, 21]
    assert list(engine.gauges["waiting"][:3]) == [0, 0, 0]
    assert steps[2] == steps[1] <= steps[0] + 30
    assert steps[3] > steps[2] + 10
    assert engine.histograms["inter_token_seconds"][3].sum() > 0
    assert engine.counters["busy_seconds"][2] - engine.counters["busy_seconds"][1] == 0
