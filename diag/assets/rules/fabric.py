"""What engines share over a network: KV transfers, stores of KV, InfiniBand links."""

from __future__ import annotations

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, RuleFile, any_of

__all__ = ["FABRIC"]

_BY = "cluster, namespace, job, instance"

_TRANSFERS = Alert(
    name="KVTransferFailing",
    expr=any_of(
        f"sum by ({_BY}) (llm:kv_transfer_failures_per_second) > {t.KV_TRANSFER_FAILURES}",
        f"sum by ({_BY}) (\n"
        "  rate(vllm:nixl_num_failed_notifications_total[5m])"
        " or rate(vllm_nixl_num_failed_notifications_total[5m])\n"
        f") > {t.KV_TRANSFER_FAILURES}",
    ),
    severity="critical",
    component="fabric",
    summary="Transfers of KV between engines fail.",
    description=(
        '{{ printf "%.2g" $value }} transfers a second fail or expire at {{ $labels.instance }}; their '
        "requests are computed again, or fail."
    ),
    runbook="kv_transfer_failure",
    dashboard="fabric",
    needs=("vllm|sglang",),
    causes=("kv_transfer_failure", "fabric_flap", "network_latency", "engine_restart"),
    thresholds=(t.KV_TRANSFER_FAILURES,),
    for_seconds=300,
)

_STALE_PEER = Alert(
    name="KVCachePeerStale",
    expr=f"llm:kv_lookup_misses_per_second > {t.KV_LOOKUP_MISSES}",
    severity="warning",
    component="fabric",
    summary="A store of shared KV lacks keys that it was believed to hold.",
    description=(
        '{{ $labels.instance }} asks for {{ printf "%.2g" $value }} keys a second that are not where the '
        "store's metadata says: a peer is gone, or came back empty."
    ),
    runbook="stale_cache_peer",
    dashboard="fabric",
    needs=("vllm",),
    causes=("stale_cache_peer", "engine_restart", "fabric_flap"),
    thresholds=(t.KV_LOOKUP_MISSES,),
    for_seconds=600,
    comment="Counted by vLLM's Mooncake store connector since 0.22.",
)

_FLAPPING = Alert(
    name="IBLinkFlapping",
    expr=any_of(
        f"increase(node_infiniband_link_downed_total[1h]) > {t.IB_LINK_DOWNS}",
        f"changes(node_infiniband_state_id[1h]) > {t.IB_STATE_CHANGES}",
    ),
    severity="warning",
    component="fabric",
    summary="An InfiniBand link goes down and comes back.",
    description=(
        "Port {{ $labels.port }} of {{ $labels.device }} on {{ $labels.instance }} flapped within the last "
        "hour: {{ $value | humanize }} events."
    ),
    runbook="fabric_flap",
    dashboard="fabric",
    needs=("node",),
    causes=("fabric_flap", "kv_transfer_failure"),
    thresholds=(t.IB_LINK_DOWNS, t.IB_STATE_CHANGES),
    subject=("instance", "device", "port"),
    keep_firing_seconds=1800,
)

FABRIC = RuleFile(
    path="alerts/fabric.yml",
    title="Between the engines",
    text="Silent where no KV connector is configured and no InfiniBand device is there.",
    needs=("vllm|sglang|node",),
    alerts=(_TRANSFERS, _STALE_PEER, _FLAPPING),
)
