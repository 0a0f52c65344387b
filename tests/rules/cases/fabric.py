"""rules/alerts/fabric.yml: what engines share over a network. Trouble lasts from minute 20 to 60."""

from __future__ import annotations

from tests.rules.cases.case import Case, Fires, Told, counter, silent
from tests.rules.cases.engines import SGLANG, UNDERSCORED, V1, Dialect, recorded_of, written

__all__ = ["CASES"]

_TRANSFERS = Told(
    "KVTransferFailing", "critical", "fabric", "Transfers of KV between engines fail.",
    "kv_transfer_failure", "fabric", ("instance",),
)  # fmt: skip
_STALE = Told(
    "KVCachePeerStale", "warning", "fabric", "A store of shared KV lacks keys that it was believed to hold.",
    "stale_cache_peer", "fabric", ("instance",),
)  # fmt: skip
_LINK = Told(
    "IBLinkFlapping", "warning", "fabric", "An InfiniBand link goes down and comes back.",
    "fabric_flap", "fabric", ("instance", "device", "port"),
    variables={"instance": "host"},
)  # fmt: skip


def _trouble(growth: float) -> str:
    return counter((20, 0), (40, growth), (30, 0))


def _failing(engine: Dialect, *metrics: str) -> Case:
    """Four failures a minute are 0.067 a second; five minutes pass 0.05 at 24."""
    found = Fires(
        {"instance": "a:8000", "job": engine.job},
        "0.067 transfers a second fail or expire at a:8000; their requests are computed again, or fail.",
    )
    series = {engine.series(name): _trouble(4 if at == 0 else 0) for at, name in enumerate(metrics)}
    return Case(
        _TRANSFERS,
        metrics[0] + f", {engine.name}",
        series,
        silent=(19, 28, 62),
        fires={29: [found], 59: [found]},
    )


_MISSED = Fires(
    recorded_of(V1),
    "a:8000 asks for 0.13 keys a second that are not where the store's metadata says: a peer is gone, or came back empty.",
)


def _keys(engine: Dialect, operation: str, growth: float) -> dict[str, str]:
    return {
        engine.series("mooncake_store_operation_failed_keys_total", operation=operation): _trouble(growth)
    }


_PORT = {"instance": "n:9100", "job": "node", "device": "mlx5_0", "port": "1"}
_STATE = "node_infiniband_state_id"


def _flapped(events: str) -> Fires:
    return Fires(_PORT, f"Port 1 of mlx5_0 on n:9100 flapped within the last hour: {events} events.")


CASES = (
    _failing(V1, "nixl_num_failed_transfers_total", "nixl_num_kv_expired_reqs_total"),
    _failing(UNDERSCORED, "nixl_num_failed_transfers_total", "nixl_num_kv_expired_reqs_total"),
    _failing(V1, "nixl_num_kv_expired_reqs_total", "nixl_num_failed_transfers_total"),
    _failing(V1, "nixl_num_failed_notifications_total"),
    _failing(UNDERSCORED, "nixl_num_failed_notifications_total"),
    _failing(
        V1,
        "mooncake_num_failed_transfers_total",
        "mooncake_num_failed_recvs_total",
        "mooncake_num_kv_expired_reqs_total",
    ),
    _failing(SGLANG, "num_transfer_failed_reqs_total", "num_bootstrap_failed_reqs_total"),
    silent(_TRANSFERS, "few", {V1.series("nixl_num_failed_transfers_total"): _trouble(2)}, 29, 55),
    silent(
        _TRANSFERS,
        "few notifications",
        {V1.series("nixl_num_failed_notifications_total"): _trouble(2)},
        29,
        55,
    ),
    *(
        Case(
            _STALE,
            engine.name,
            _keys(engine, "get", 8),
            silent=(19, 33, 62),
            fires={34: [_MISSED], 59: [_MISSED]},
        )
        for engine in (V1, UNDERSCORED)
    ),
    silent(_STALE, "few", _keys(V1, "get", 5), 34, 55),
    silent(_STALE, "writes", _keys(V1, "put", 8), 34, 55),
    # Down at 20 and 30: both lie within an hour until 79, and the alert is kept for half an hour.
    Case(
        _LINK,
        "link down twice",
        {written("node_infiniband_link_downed_total", _PORT): "0x19 1x9 2x100"},
        silent=(19, 29, 110),
        fires={30: [_flapped("2")], 109: [_flapped("2")]},
    ),
    silent(
        _LINK, "link down once", {written("node_infiniband_link_downed_total", _PORT): "0x19 1x100"}, 20, 60
    ),
    Case(
        _LINK,
        "state changes",
        {written(_STATE, _PORT): "4x19 1x1 4x1 1x1 4x100"},
        silent=(19, 23),
        fires={24: [_flapped("3")]},
    ),
    silent(_LINK, "state down and up again", {written(_STATE, _PORT): "4x19 1x1 4x100"}, 20, 22, 60),
)
"""Every case of this file."""
