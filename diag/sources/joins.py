"""Which node and which GPUs an engine instance runs on, and how we know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from diag.model import Join, Series
from diag.signals import SIGNALS
from diag.signals.vocabulary import Scope
from diag.sources.naming import host_of

__all__ = ["joined"]


class _Place:
    """What is known of the place of things, by kind."""

    def __init__(self, series: Mapping[str, Iterable[Series]]) -> None:
        self.engines: dict[str, dict[str, str]] = {}
        self.nodes: dict[str, set[str]] = defaultdict(set)
        self.gpus: dict[str, set[str]] = defaultdict(set)
        self.gpus_of_pod: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.node_of_pod: dict[tuple[str, str], str] = {}
        for name, rows in series.items():
            known = SIGNALS.get(name)
            for one in rows:
                if known is not None:
                    self._add(known.scope, one)

    def _add(self, scope: Scope, one: Series) -> None:
        labels = one.labels
        instance, node = labels.get("instance", ""), labels.get("node", "")
        if scope is Scope.ENGINE and instance and not one.producer.startswith("log:"):
            held = self.engines.setdefault(instance, {})
            held.update({k: v for k, v in labels.items() if k in ("node", "pod", "namespace") and v})
        elif scope is Scope.GPU and node:
            gpu = labels.get("gpu") or labels.get("gpu_index", "")
            self.gpus[node] |= {gpu} if gpu else set()
            if labels.get("pod"):
                key = (labels.get("namespace", ""), labels["pod"])
                self.gpus_of_pod[key].add(gpu)
                self.node_of_pod[key] = node
        elif scope is Scope.NODE and node and one.producer == "node":
            self.nodes[node].add(host_of(instance))


def joined(series: Mapping[str, Iterable[Series]]) -> tuple[tuple[Join, ...], tuple[str, ...]]:
    """A ``Join`` for every engine instance, and notes on those that could not be joined.

    Tried in order: a shared ``node`` or ``pod`` label, an equal host part of the scrape addresses,
    and "only one": there is a single node and nothing else it could be.
    """
    place = _Place(series)
    joins = tuple(_join(instance, place) for instance in sorted(place.engines))
    anything = bool(place.nodes or place.gpus)
    lost = [one.instance for one in joins if one.node is None] if anything else []
    if not lost:
        return joins, ()
    said = ", ".join(lost[:3]) + (", …" if len(lost) > 3 else "")
    return joins, (
        f"which node {said} runs on is not known: no shared node or pod label, no equal host; host and GPU"
        " findings cannot be laid at its door (relabel the scrape jobs with a common `node`)",
    )


def _join(instance: str, place: _Place) -> Join:
    labels = place.engines[instance]
    pod = (labels.get("namespace", ""), labels.get("pod", ""))
    node = labels.get("node")
    if node and (node in place.nodes or node in place.gpus):
        return Join(instance, node, _gpus(place, node, pod), "label")
    if pod in place.node_of_pod:
        return Join(instance, place.node_of_pod[pod], _gpus(place, place.node_of_pod[pod], pod), "label")
    host = host_of(instance)
    for known in sorted({*place.nodes, *place.gpus}):
        if host == known or host in place.nodes.get(known, ()):
            return Join(instance, known, _gpus(place, known, pod), "host")
    if len(place.nodes) <= 1 and len(place.gpus) <= 1 and (place.nodes or place.gpus):
        # One machine can go by two names: the node exporter's and the GPU exporter's.
        only = next(iter(place.nodes or place.gpus))
        return Join(
            instance,
            only,
            _gpus(place, only, pod) or _gpus(place, next(iter(place.gpus), ""), pod),
            "only one",
        )
    return Join(instance, None, (), "")


def _gpus(place: _Place, node: str, pod: tuple[str, str]) -> tuple[str, ...]:
    return tuple(sorted(place.gpus_of_pod.get(pod) or place.gpus.get(node) or set()))
