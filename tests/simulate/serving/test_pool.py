"""The KV pool: what is used, what is evictable, and who is evicted first."""

from __future__ import annotations

import pytest

from diag.simulate.serving.blocks import Pool


def cached(pool: Pool, key: str, blocks: int) -> None:
    chain = pool.chain(key)
    pool.hold(chain)
    pool.take(blocks)
    chain.blocks = blocks
    pool.drop(chain)


def test_a_cached_prefix_counts_as_available() -> None:
    pool = Pool(10)
    cached(pool, "a", 4)
    assert (pool.used, pool.evictable, pool.available) == (0, 4, 10)


def test_the_prefix_left_longest_ago_goes_first_and_from_its_tail() -> None:
    pool = Pool(10)
    cached(pool, "a", 4)
    cached(pool, "b", 4)
    pool.take(5)
    assert (pool.held_blocks("a"), pool.held_blocks("b")) == (1, 4)
    pool.take(2)
    assert (pool.held_blocks("a"), pool.held_blocks("b")) == (0, 3)
    assert (pool.evicted, pool.used + pool.evictable) == (5, 10)


def test_using_a_prefix_makes_it_the_last_to_go() -> None:
    pool = Pool(10)
    cached(pool, "a", 4)
    cached(pool, "b", 4)
    again = pool.chain("a")
    pool.hold(again)
    pool.drop(again)
    pool.take(6)
    assert (pool.held_blocks("a"), pool.held_blocks("b")) == (4, 0)


def test_a_prefix_in_use_is_not_evicted_and_counts_once() -> None:
    pool = Pool(10)
    cached(pool, "a", 4)
    chain = pool.chain("a")
    assert pool.price("a") == 4
    pool.hold(chain)
    assert pool.price("a") == 0
    pool.hold(chain)
    assert pool.used == 4
    pool.take(6)
    assert (pool.held_blocks("a"), pool.available) == (4, 0)


@pytest.mark.parametrize(("asked", "taken"), [(3, 3), (30, 10)])
def test_a_leak_takes_no_more_than_there_is(asked: int, taken: int) -> None:
    pool = Pool(10)
    pool.leak(asked)
    assert (pool.leaked, pool.used) == (taken, taken)
