"""The one table of expert weights: how much each cue speaks for or against its hypothesis.

A row is (likelihood ratio when the prediction comes true, likelihood ratio when it does not, reason).
The ratios are expert guesses in round numbers, seeded by the strongest cues of the published
prototype; calibration will come with a labelled corpus. Each pair straddles 1 (tested).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["WEIGHTS", "Weight"]


@dataclass(frozen=True, slots=True)
class Weight:
    """``when_true`` > 1 > ``when_false``; ``group``: cues of one group are one vote (the strongest).
    ``driver`` marks the cue without which the hypothesis cannot be supported; ``root`` marks cues that
    only tell a root from a consequence: they are left aside once a supported cause explains it."""

    when_true: float
    when_false: float
    reason: str
    group: str = ""
    driver: bool = False
    root: bool = False


def _w(
    true: float, false: float, reason: str, group: str = "", *, driver: bool = False, root: bool = False
) -> Weight:
    return Weight(true, false, reason, group, driver, root)


WEIGHTS: Mapping[str, Mapping[str, Weight]] = {
    "context_growth": {
        "length": _w(5, 0.04, "lengths must rise", driver=True),
        "growth": _w(12, 0.05, "rising with the session is the mechanism itself", "growth", driver=True),
        "ramp": _w(6, 0.2, "growth climbs, giants jump", "growth"),
        "giants": _w(1.01, 0.05, "single giants are another cause", "growth"),
        "dose": _w(3, 0.4, "longer prompts wait longer"),
        "kv_fills": _w(1.5, 0.8, "longer contexts take more of the pool"),
        "answers_flat": _w(1.2, 0.03, "longer answers make longer histories by themselves"),
        "rate_flat": _w(1.3, 0.4, "a higher rate is another cause"),
    },
    "kv_cache_exhaustion": {
        "full": _w(6, 0.01, "the pool must be full", driver=True),
        "pressure": _w(4, 0.1, "somebody is evicted or waits for blocks"),
        "shrank": _w(
            10, 0.3, "a smaller pool makes it the root; with the same pool demand filled it", root=True
        ),
        "demand_flat": _w(1.5, 0.25, "otherwise demand filled the pool", root=True),
    },
    "prefix_cache_off": {
        "off": _w(20, 0.005, "a configuration fact", driver=True),
        "repeats": _w(4, 0.05, "caching helps only repeated prompts"),
        "switched": _w(8, 0.9, "switched off in the window: a trigger"),
        "route": _w(1.5, 0.3, "it costs prefill, and queue behind it"),
    },
    "prefix_cache_broken": {
        "hits": _w(12, 0.02, "hits must fall", "hits", driver=True),
        "hits_ratio": _w(4, 0.2, "the ratio falls with them", "hits"),
        "reuse": _w(1.01, 0.1, "new prompts that nobody has cached are another cause", "reuse"),
        "caching_on": _w(1.01, 0.001, "off is another cause"),
        "lengths_flat": _w(2, 0.1, "longer prompts are another cause"),
        "no_pressure": _w(1.5, 0.15, "a full pool evicts cached blocks"),
        "one_replica": _w(1.01, 0.04, "scattered sessions are another cause"),
        "lost": _w(2, 0.02, "the added prefill must be what caches used to hold", "hits"),
        "everywhere": _w(1.5, 0.25, "a changed head misses on every replica and every turn"),
        "no_restart": _w(1.01, 0.1, "cold caches warm up again"),
        "route": _w(3, 0.25, "the harm is prefill"),
    },
    "prefix_cache_scattered": {
        "replicas": _w(1.01, 0.001, "it takes two replicas"),
        "hits": _w(6, 0.04, "hits must fall", "hits", driver=True),
        "switching": _w(20, 0.02, "turns must change replica", "placement"),
        "partial": _w(3, 0.3, "by chance some turns still hit", "placement"),
        "lost": _w(3, 0.04, "the added prefill must be what caches used to hold", "hits", driver=True),
        "same_replica_hits": _w(3, 0.05, "hits depend on placement"),
        "lengths_flat": _w(1.5, 0.2, "longer prompts are another cause"),
        "route": _w(2, 0.3, "the harm is prefill"),
    },
    "load_burst": {
        "rate": _w(8, 0.03, "arrivals must rise", driver=True),
        "queue": _w(5, 0.06, "the excess is waiting", "queue"),
        "waiting": _w(3, 0.15, "the queue is seen", "queue"),
        "lengths_flat": _w(1.5, 0.4, "longer prompts are another cause"),
        "tenants_even": _w(2, 0.05, "one tenant alone is another cause"),
        "not_retries": _w(1.01, 0.03, "retries are a consequence"),
    },
    "tenant_dominance": {
        "share": _w(20, 0.02, "one share must rise", driver=True),
        "others_level": _w(3, 0.2, "the others did not send more"),
        "others_wait": _w(3, 0.2, "the others suffer"),
        "queue": _w(3, 0.2, "the harm is waiting"),
        "more": _w(1.3, 0.1, "longer prompts or answers of as many requests are another cause", root=True),
    },
    "head_of_line_blocking": {
        "giants": _w(8, 0.02, "there must be giants", driver=True),
        "behind": _w(12, 0.06, "those behind a giant wait, others do not"),
        "median_flat": _w(2, 0.2, "most prompts are as before"),
        "not_queue": _w(2, 0.5, "the engine's queue clock does not see it"),
        "jump": _w(1.5, 0.12, "giants jump, growth climbs"),
        "payers": _w(3, 0.015, "in one step it stops who streams as long as who waits"),
        "kv_free": _w(1.4, 0.2, "memory is not the limit"),
        "rate_flat": _w(1.4, 0.3, "a higher rate is another cause"),
    },
    "prefill_interference": {
        "tail": _w(3, 0.05, "the gaps in answers must be longer"),
        "in_step": _w(9, 0.06, "gaps that follow prefill are the mechanism itself", "in_step", driver=True),
        "dose": _w(6, 0.15, "prefill must account for the answers' longer time", "in_step"),
        "prefill": _w(3, 0.12, "more or longer prefill is what changed"),
        "streams": _w(1.5, 0.06, "answers that flow pay, not those who wait"),
        "fresh": _w(1.3, 0.06, "old prompts grown or computed anew are another cause", root=True),
        "curve_still": _w(2.5, 0.08, "a slower machine lifts the whole curve"),
        "budget": _w(2, 0.5, "the budget bounds how long a chunk can make a step"),
        "each": _w(1.3, 0.3, "more of the same requests are a higher rate"),
        "payers": _w(3, 0.015, "in many steps it holds up who waits behind it, not who streams", driver=True),
    },
    "abandoned_requests": {
        "aborts": _w(25, 0.02, "departures must rise", "departures", driver=True),
        "hole": _w(20, 0.05, "answers without an end", "departures", driver=True),
        "unprovoked": _w(1.01, 0.03, "who leaves a queue that a burst made is its consequence", root=True),
    },
    "long_outputs": {
        "outputs": _w(15, 0.02, "answers must be longer", driver=True),
        "running": _w(2, 0.3, "slots stay taken"),
        "duration": _w(2, 0.2, "answers take longer"),
        "rate_flat": _w(1.3, 0.4, "a higher rate is another cause"),
        "tokens_steady": _w(1.5, 0.4, "the machine is not what slowed down"),
    },
    "sequence_limit": {
        "pinned": _w(6, 0.01, "a ceiling must be seen", driver=True),
        "kv_free": _w(2, 0.03, "memory is free"),
        "known_limit": _w(2, 0.7, "the setting agrees"),
        "serves": _w(1.01, 0.05, "a limit slows, it does not stop"),
        "lowered": _w(8, 0.4, "the ceiling fell", root=True),
        "demand_flat": _w(2, 0.15, "otherwise demand met an unchanged limit", root=True),
    },
    "oversized_request": {
        "blocked": _w(6, 0.005, "nothing may run while others wait", driver=True),
        "kv_low": _w(4, 0.05, "an empty pool refuses only what can never fit"),
        "steps": _w(2.5, 0.1, "a scheduler that steps and admits nobody has a reason"),
        "reason": _w(3, 0.1, "the scheduler says what it waits for"),
        "too_long": _w(20, 0.02, "a prompt longer than the pool is the mechanism itself", "length"),
        "possible": _w(2, 0.01, "only a prompt that is accepted and does not fit can block", "length"),
        "released": _w(6, 0.5, "the queue moves when its head goes"),
    },
    "engine_stall": {
        "silent": _w(10, 0.005, "tokens must stop while requests are held", driver=True),
        "alive": _w(1.5, 0.1, "a process that is gone is a crash"),
        "held": _w(5, 0.06, "no step ends, or what is parked never comes back", "held"),
        "room": _w(1.01, 0.08, "a full pool admits nobody", "room"),
        "fits": _w(1.01, 0.03, "a head that cannot fit explains an empty batch", "room"),
        "asked": _w(1.5, 0.03, "gauges left over hold nobody; whatever blocks, who asks gets nothing"),
        "cards": _w(3, 0.1, "a GPU that works is computing something"),
        "cried": _w(3, 0.9, "its log says so"),
    },
    "kv_block_leak": {
        "idle": _w(30, 0.02, "blocks taken with nothing running belong to nobody", "floor", driver=True),
        "floor": _w(8, 0.03, "the floor must rise beyond what the work explains", "floor", driver=True),
        "full": _w(2, 0.1, "leaked blocks hurt when there are no others left"),
        "reset": _w(1.5, 0.5, "only a restart gives leaked blocks back, but it empties every pool"),
        "demand_flat": _w(2, 0.2, "more or longer requests take more blocks", root=True),
        "work_flat": _w(1.5, 0.4, "a larger batch takes more blocks"),
        "departures": _w(1.5, 0.9, "aborts are where blocks get lost"),
        "page_moves": _w(1.01, 0.03, "a page that stands still shows no floor"),
        "shared_still": _w(1.01, 0.08, "requests that share no prefix take more blocks each", root=True),
    },
    "cuda_graph_gap": {
        "step": _w(12, 0.06, "a step in the curve is the mechanism itself", "graphs", driver=True),
        "eager": _w(15, 0.02, "the engine counts, or was told, steps without graphs", "graphs", driver=True),
        "since_restart": _w(4, 0.2, "a start-up without graphs lasts until the next", "graphs", driver=True),
        "prefill_holds": _w(4, 0.4, "prefill runs without graphs anyway, but among the steps of others"),
        "gaps": _w(4, 0.4, "launched one by one, kernels leave a card waiting; work never does"),
        "beyond": _w(3, 0.1, "the batch must leave the captured sizes", driver=True),
        "host_clean": _w(1.2, 0.12, "a host that is far or short launches late, with graphs or without"),
        "only_change": _w(1.01, 0.35, "what else was changed with a start may be it"),
        "below_flat": _w(2, 0.2, "a slower machine is slower at every size"),
        "clock_held": _w(1.2, 0.1, "a lower clock lengthens steps by itself"),
        "slower": _w(2, 0.2, "the harm is the time between tokens"),
    },
    "spec_decode_collapse": {
        "acceptance": _w(15, 0.02, "acceptance must fall", "acceptance", driver=True),
        "accepted_length": _w(10, 0.04, "so must the tokens a step gives", "acceptance", driver=True),
        "slower": _w(4, 0.15, "the harm is the time per token"),
        "demand_flat": _w(1.5, 0.4, "more work makes steps longer, too"),
    },
    "grammar_stall": {
        "structured": _w(3, 0.01, "there must be structured requests", driver=True),
        "in_step": _w(30, 0.06, "answers that pay for structured requests are the mechanism itself"),
        "queue": _w(10, 0.4, "requests wait for their grammar", "queue", driver=True),
        "parked": _w(2, 0.85, "vLLM parks who waits for a grammar, among others", "queue"),
        "card_waits": _w(2.5, 0.3, "a mask is filled before a step may go on, and the card waits for it"),
        "cpu": _w(1.5, 0.85, "compiling is the host's work, seldom the API server's"),
        "demand_flat": _w(1.5, 0.4, "more work makes steps longer, too"),
    },
    "engine_restart": {
        "restarted": _w(12, 0.01, "a new process must be seen", driver=True),
        "outage": _w(2, 0.7, "it did not answer meanwhile"),
        "errors": _w(2, 0.6, "requests in flight are lost"),
        "passes": _w(1.2, 0.1, "caches warm up: what stays has another cause"),
        "same_settings": _w(1.5, 0.15, "with other settings the change is the cause", root=True),
    },
    "port_conflict": {
        "bind": _w(25, 0.02, "the log must tell of the port", driver=True),
        "outage": _w(4, 0.08, "what cannot bind does not serve"),
        "again": _w(3, 0.5, "a supervisor tries again into the same clash"),
    },
    "config_change": {
        "event": _w(5, 0.9, "somebody marked a change", "change", driver=True),
        "setting": _w(14, 0.02, "a setting did change", "change", driver=True),
        "restarted": _w(2.5, 0.1, "engines read their settings at start"),
        "limit": _w(6, 0.6, "a limit is lower than before"),
        "demand_flat": _w(2.5, 0.12, "demand is another cause"),
        "contrast": _w(4, 0.15, "instances without the change are the control"),
    },
    "thermal_throttle": {
        "reason": _w(15, 0.03, "the GPU says so itself", driver=True),
        "clock": _w(6, 0.03, "the clock must fall", driver=True),
        "heat": _w(3, 0.15, "it must be hot"),
        "slower": _w(2, 0.4, "steps must take longer"),
    },
    "power_cap": {
        "reason": _w(12, 0.05, "the GPU says so itself", driver=True),
        "clock": _w(6, 0.03, "a cap without a lower clock is harmless"),
        "limit": _w(4, 0.9, "the limit itself was lowered"),
        "no_heat": _w(2, 0.3, "heat is another cause"),
        "slower": _w(2, 0.4, "steps must take longer"),
    },
    "noisy_neighbour": {
        "foreign": _w(4, 0.02, "there must be a neighbour", driver=True),
        "in_step": _w(15, 0.02, "it must keep time with the slow spells"),
        "slower": _w(2, 0.4, "steps must take longer"),
        "apart": _w(3, 0.4, "engines on other cards are the control"),
        "demand_flat": _w(1.5, 0.4, "more work explains slower steps"),
    },
    "gpu_hardware_fault": {
        "fault": _w(15, 0.02, "the card or its driver must report it", "fault", driver=True),
        "memory": _w(18, 0.9, "memory that can't be corrected is the card's own", "fault"),
        "one_card": _w(2, 0.2, "many cards at once are a program or the fabric"),
        "followed": _w(6, 0.1, "somebody must feel it, and after it"),
    },
    "gpu_link_degraded": {
        "narrow": _w(12, 0.05, "a link below its width under load", "link", driver=True),
        "errors": _w(8, 0.05, "packets are sent again", "link", driver=True),
        "slower": _w(4, 0.06, "most narrow links are felt by nobody"),
        "apart": _w(3, 0.25, "engines with full links are the control"),
        "clock_clean": _w(1.5, 0.15, "a lower clock is another cause"),
        "demand_flat": _w(1.5, 0.3, "more work explains slower steps"),
    },
    "slow_gpu": {
        "slower": _w(3, 0.02, "steps must take longer"),
        "watts": _w(12, 0.04, "less done for each tick draws fewer watts", driver=True),
        "clock_clean": _w(2, 0.03, "a lower clock is another cause"),
        "flags_clean": _w(1.5, 0.1, "the card would say why"),
        "works_on": _w(1.3, 0.1, "a card that waits for its host is not slow"),
        "nobody_else": _w(1.2, 0.1, "a neighbour is another cause"),
        "apart": _w(4, 0.1, "its likes are as fast as before"),
        "demand_flat": _w(1.5, 0.2, "more work explains slower steps"),
    },
    "host_cpu_starvation": {
        "cpu": _w(3, 0.1, "CPU must be short", "cpu", driver=True),
        "run_queue": _w(2, 0.4, "tasks wait", "cpu", driver=True),
        "demand_flat": _w(3, 0.08, "more work explains slower steps"),
        "slower": _w(5, 0.1, "everything takes longer at equal work"),
        "front": _w(3, 0.5, "requests stall outside queue and prefill"),
        "gpu_not_busier": _w(1.2, 0.5, "the GPU waits"),
    },
    "runtime_pauses": {
        "silences": _w(6, 0.03, "the process must halt", driver=True),
        "periodic": _w(
            8, 0.1, "collections come by allocation, about evenly; random halts are something else"
        ),
        "growing": _w(5, 0.25, "each has more to walk through than the last"),
        "harm": _w(3, 0.2, "those who met a halt hold the excess"),
        "engine_sees": _w(2, 0.1, "a halt on the way is the network's"),
        "unprovoked": _w(1.2, 0.03, "who is sent work in a beat answers in it"),
        "card_waits": _w(3, 0.3, "a halted process gives its card no work; long prompts do"),
        "host_clean": _w(1.2, 0.15, "a host that is far, short or swaps keeps a card waiting, too"),
    },
    "numa_misplacement": {
        "far": _w(12, 0.03, "accesses must go far", driver=True),
        "slower": _w(5, 0.03, "many true misplacements cost nothing: demand the effect"),
        "since_start": _w(3, 0.2, "a process is placed when it starts"),
        "elsewhere_near": _w(2, 0.4, "other hosts are the control"),
        "demand_flat": _w(1.5, 0.2, "more work explains slower steps"),
    },
    "host_memory_leak": {
        "resident": _w(6, 0.04, "memory must climb", driver=True),
        "memory_short": _w(4, 0.15, "and run out"),
        "harm": _w(10, 0.04, "with a consequence"),
    },
    "network_latency": {
        "gap": _w(30, 0.02, "the time must be lost outside the engine", "gap", driver=True),
        "engine_flat": _w(2.5, 0.3, "the engine is as fast as before"),
        "shared_way": _w(1.2, 0.3, "a way is shared by its clients"),
        "not_crowded": _w(1.5, 0.15, "a way costs each the same; a queue grows with those before"),
        "connect": _w(6, 0.5, "the gateway sees it", driver=True),
        "gateway_share": _w(12, 0.05, "the time must be lost before the engine", "gap"),
        "retransmits": _w(3, 0.9, "packets are lost"),
    },
    "proxy_limit": {
        "pinned": _w(10, 0.05, "the engines stand at one number while clients wait", driver=True),
        "engine_room": _w(2, 0.05, "the engine itself would let them in"),
        "outside": _w(5, 0.05, "the time passes outside the engine"),
        "crowded": _w(4, 0.06, "a full pool makes a queue: the more before, the longer"),
        "gateway_wait": _w(8, 0.3, "the gateway's own clock has it", driver=True),
        "timeouts": _w(6, 0.8, "a timeout strikes at a round time", driver=True),
        "cut_off": _w(12, 0.3, "a new limit cuts what lasted longer; an old one strikes what slowed down"),
        "everyone": _w(1.5, 0.1, "a gateway's limit meets all its clients"),
    },
    "client_limit": {
        "held_back": _w(6, 0.05, "clients hold back what the engines would take", driver=True),
        "outside": _w(5, 0.04, "the time passes outside the engine"),
        "one_client": _w(8, 0.08, "the others are the control"),
        "engine_flat": _w(1.5, 0.3, "the engine is as fast as before"),
        "crowded": _w(4, 0.06, "its own queue: the more before, the longer", driver=True),
        "idle_between": _w(1.5, 0.9, "the server has less to do"),
        "gateway_flat": _w(2, 0.1, "behind the gateway's door nobody waits"),
    },
    "fabric_flap": {
        "downs": _w(15, 0.02, "a link must go down", driver=True),
        "since_then": _w(3, 0.2, "what went down later explains nothing"),
        "transfers": _w(6, 0.05, "a flap that fails no transfer is felt by nobody", "harm"),
        "retries": _w(2, 0.9, "failed transfers are begun anew", "harm"),
        "engine_died": _w(5, 0.2, "collectives do not survive a dead port", "harm"),
    },
    "kv_transfer_failure": {
        "failures": _w(10, 0.02, "the connector must count failures", driver=True),
        "share": _w(2, 0.3, "a stray failure costs nobody much"),
        "slower": _w(1.5, 0.9, "those that succeed take longer"),
        "parked": _w(3, 0.9, "requests wait for what does not come", "cost"),
        "late": _w(2, 0.1, "the first token must be late", "cost"),
        "links_sound": _w(1.5, 0.1, "links that went down are the root", root=True),
        "keys_there": _w(1.2, 0.2, "stale metadata is another cause", root=True),
    },
    "stale_cache_peer": {
        "misses": _w(12, 0.02, "what is believed to be there must be missed", "misses", driver=True),
        "elsewhere": _w(10, 0.1, "what peers held must be found no more", "misses", driver=True),
        "fresh": _w(4, 0.2, "somebody took a dead process's place"),
        "links_sound": _w(1.5, 0.15, "links that went down are another cause"),
        "late": _w(2, 0.1, "those who asked in vain compute it"),
    },
    "routing_hotspot": {
        "replicas": _w(1.01, 0.001, "it takes two replicas"),
        "share": _w(10, 0.02, "one replica must get more than its part", driver=True),
        "rate_flat": _w(1.5, 0.3, "more for all is another cause"),
        "apart": _w(4, 0.2, "it queues while others have room"),
        "hot_is_slow": _w(4, 0.15, "the overloaded one is the slow one"),
        "hits_hold": _w(1.5, 0.5, "cache affinity is what draws the work"),
        "queue": _w(1.5, 0.6, "the harm is waiting"),
        "peers_alive": _w(1.01, 0.05, "a replica that is away leaves its work to the others"),
    },
    "telemetry_fault": {
        "frozen": _w(40, 0.03, "a living process moves its own CPU time", "frozen", driver=True),
        "lost": _w(30, 0.5, "series end or scrapes fail while the process goes on", "frozen", driver=True),
        "traffic": _w(10, 0.3, "clients were served meanwhile"),
        "left_over": _w(25, 0.5, "gauges that hold requests which nobody sent", "frozen", driver=True),
    },
}
