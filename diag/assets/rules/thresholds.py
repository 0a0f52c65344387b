"""The numbers that alerts compare with, each with its reason. Dashboards draw the same ones.

They were judged, not learned: from published limits, from the recordings and simulations that the
rules are replayed over, and from what an operator would want to be woken for.
"""

from __future__ import annotations

from diag.assets.rules.model import Threshold as T

__all__ = [
    "ABORTED_SHARE",
    "BURN_FAST",
    "BURN_MEDIUM",
    "BURN_SLOW",
    "CLIENT_GAP",
    "CLOCK_CAPPED",
    "CLOCK_JUDGED",
    "CONTEXT_NEAR_LIMIT",
    "CPU_PRESSURE",
    "CPU_USER",
    "ERRORS_FLOOR",
    "ERROR_SHARE",
    "FIRST_TOKENS_FLOOR",
    "FOREIGN_MEMORY",
    "FOREIGN_SM",
    "GIANTS_APART",
    "HITS_HALVED",
    "HITS_WORTH_HAVING",
    "IB_LINK_DOWNS",
    "IB_STATE_CHANGES",
    "IDLE_WAITING",
    "INTER_TOKEN_BOUND",
    "INTER_TOKEN_SLOW_SHARE",
    "KV_FREE",
    "KV_FULL",
    "KV_HELD",
    "KV_LOOKUP_MISSES",
    "KV_TRANSFER_FAILURES",
    "LINK_PART",
    "LINK_REPLAYS",
    "LINK_UNDER_LOAD",
    "MEMORY_GROWN",
    "MEMORY_LARGE",
    "MEMORY_LOW",
    "MEMORY_OUT",
    "NVLINK_ERRORS",
    "POWER_BRAKE",
    "POWER_CAPPED",
    "PREEMPTED_SHARE",
    "PREEMPTIONS_FLOOR",
    "PROMPTS_GROWN",
    "PROMPTS_LONG",
    "PROMPT_TOKENS_FLOOR",
    "QUEUE_LONG",
    "RESTARTS",
    "RETRANSMITTED",
    "REUSE_MISSED",
    "SEQUENCES_PINNED",
    "SGLANG_TTFT_BOUND",
    "TAIL_APART",
    "TENANTS_FEW",
    "TENANT_SHARE",
    "THERMAL_SHARE",
    "TTFT_BOUND",
    "TTFT_OBJECTIVE",
    "TTFT_TAIL",
    "XID_APP",
]

# Service level: first tokens.
TTFT_OBJECTIVE = T(0.99, "ratio", "at 95 % the fast burn would need 72 % of all first tokens to be slow")
TTFT_BOUND = T(5.0, "seconds", "a bound of vLLM's histogram since 0.4; a reader gives up around there")
SGLANG_TTFT_BOUND = T(6.0, "seconds", "SGLang's histogram has bounds at 4 and 6 seconds, none at 5")
BURN_FAST = T(0.144, "ratio", "14.4 times the 1 % budget: a month's budget gone in two days")
BURN_MEDIUM = T(0.06, "ratio", "6 times the budget: gone in five days")
BURN_SLOW = T(0.03, "ratio", "3 times the budget: gone in ten days")
FIRST_TOKENS_FLOOR = T(
    0.02, "per second", "72 requests an hour: below, a handful of slow ones would burn the budget"
)
INTER_TOKEN_BOUND = T(
    0.4,
    "seconds",
    "slower than anybody reads, and a bound of both engines; big batches on slow cards reach 0.2",
)
INTER_TOKEN_SLOW_SHARE = T(0.1, "ratio", "one token in ten is a stutter that a reader sees in every line")
ERROR_SHARE = T(0.05, "ratio", "one request in twenty fails")
ERRORS_FLOOR = T(0.02, "per second", "six errors in five minutes: a single bad client is no outage")

# Engine and queue.
RESTARTS = T(2, "restarts", "two in half an hour happen in a roll-out; a third is a loop")
QUEUE_LONG = T(10, "requests", "a queue this long does not drain within a few steps")
IDLE_WAITING = T(1, "requests", "a replica with nobody waiting has room")
TTFT_TAIL = T(2.0, "seconds", "below this nobody complains, however far the tail lies from the median")
TAIL_APART = T(5, "ratio", "the slowest twentieth waits five times the median: chance does less")
GIANTS_APART = T(8, "ratio", "the longest prompts are of another kind than the usual ones")
PROMPTS_GROWN = T(
    2, "ratio", "twice the usual length is twice the prefill and twice the cache for each request"
)
PROMPTS_LONG = T(2000, "tokens", "shorter prompts are prefilled in one step whatever they were before")
SEQUENCES_PINNED = T(
    0.95, "ratio", "of max_num_seqs: mean over five minutes, so it never stands at 1 for long"
)

# Cache.
KV_FULL = T(0.95, "ratio", "the last blocks are held back as slack; evictable cached blocks count as free")
KV_FREE = T(0.7, "ratio", "with this much of the pool free it is not the pool that makes requests wait")
KV_HELD = T(0.1, "ratio", "an idle engine holds no blocks; a tenth of the pool is no rounding")
PREEMPTED_SHARE = T(0.1, "ratio", "one in ten finished requests was computed twice")
PREEMPTIONS_FLOOR = T(
    0.0167, "per second", "five in five minutes: a single one is how the pool is meant to work"
)
HITS_HALVED = T(
    0.5, "ratio", "half of what it was over the day before: prefill work doubles where hits were many"
)
HITS_WORTH_HAVING = T(0.2, "ratio", "below a fifth there was little to lose")
PROMPT_TOKENS_FLOOR = T(50, "tokens per second", "below this there is too little traffic to judge a ratio by")
REUSE_MISSED = T(0.3, "ratio", "a third of all prompt tokens was sent before and computed again")

# GPU.
THERMAL_SHARE = T(0.1, "ratio", "six seconds a minute; a sound card shows none")
POWER_BRAKE = T(0.5, "ratio", "half of the time: the brake halves the clock, or more")
POWER_CAPPED = T(0.9, "ratio", "a card at full load shows it in good health: only together with the clock")
CLOCK_CAPPED = T(0.7, "ratio", "of the highest clock; a power cap at full load costs a sound card less")
CLOCK_JUDGED = T(0.8, "ratio", "an idle card clocks down on purpose: only cards at work are judged")
XID_APP = T(3, "events", "one or two an hour are a crashing program, more are a pattern")
NVLINK_ERRORS = T(100, "errors", "in a quarter of an hour: links correct a few, and slow down from many")
LINK_PART = T(0.75, "ratio", "half the lanes or a generation below; x16 of x16 is 1, generation 4 of 5 is .8")
LINK_UNDER_LOAD = T(0.2, "ratio", "an idle card's link shifts down on purpose")
LINK_REPLAYS = T(0.1, "per second", "a sound link repeats a packet now and then; one in ten seconds is more")
FOREIGN_MEMORY = T(
    1e9, "bytes", "a driver's context holds a few hundred megabytes; this is a program at work"
)
FOREIGN_SM = T(0.1, "ratio", "a tenth of the card's time is what a user would feel")

# Fabric.
KV_TRANSFER_FAILURES = T(0.05, "per second", "fifteen in five minutes: peers that restart lose a few")
KV_LOOKUP_MISSES = T(0.1, "per second", "thirty in five minutes: evictions alone cause a few")
IB_LINK_DOWNS = T(1.5, "events", "two or more an hour; increase() makes a little more than 1 of one event")
IB_STATE_CHANGES = T(2, "changes", "down and up again is one event, twice is flapping")

# Requests and sessions.
CONTEXT_NEAR_LIMIT = T(0.9, "ratio", "of the model's longest context: the next turns are cut or refused")
TENANT_SHARE = T(0.6, "ratio", "one tenant has more than all the others together, by far")
TENANTS_FEW = T(2, "tenants", "alone, a tenant takes nothing from anybody")
ABORTED_SHARE = T(0.15, "ratio", "some users always leave; one in seven is a timeout or an answer too late")
CLIENT_GAP = T(1.0, "seconds", "a second outside the engine, before the first token, is no network any more")

# Host.
MEMORY_OUT = T(0.05, "ratio", "the kernel reclaims in earnest and programs begin to stall")
MEMORY_LOW = T(0.2, "ratio", "a trend is worth a warning once little is left")
MEMORY_GROWN = T(1.5, "ratio", "half again as much as six hours ago; a warm process stands still")
MEMORY_LARGE = T(2e9, "bytes", "the growth of a small process starves nobody")
CPU_PRESSURE = T(0.3, "ratio", "a third of the time some task waits for a CPU")
CPU_USER = T(0.75, "ratio", "spinning workers make a CPU look busy; work in user mode shows who computes")
RETRANSMITTED = T(
    0.05, "ratio", "one segment in twenty; a sound network in a data centre repeats almost none"
)
