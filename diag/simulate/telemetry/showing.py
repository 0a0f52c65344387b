"""From a run to a bundle: every page scraped, every log written, the label beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from diag.simulate.observed import Run
from diag.simulate.parts import Bundle
from diag.simulate.plan import Plan
from diag.simulate.telemetry.cards import Reading, reading_of
from diag.simulate.telemetry.dcgm import dcgm_page
from diag.simulate.telemetry.exporter import exporter_page
from diag.simulate.telemetry.gateway import gateway_page, store_page
from diag.simulate.telemetry.hosts import backend_page, containers_page, node_page
from diag.simulate.telemetry.logs import engine_logs, kernel_logs
from diag.simulate.telemetry.nvidia_smi import nvidia_smi_page
from diag.simulate.telemetry.page import Page
from diag.simulate.telemetry.records import records_of
from diag.simulate.telemetry.scraping import scraped
from diag.simulate.telemetry.sglang import sglang_page
from diag.simulate.telemetry.vllm import vllm_page

__all__ = ["show"]

_SCHEMA = "diag.bundle/1"
_GPU_PAGES = {"dcgm": dcgm_page, "nvidia_gpu_exporter": nvidia_smi_page, "llmdiag": exporter_page}
_ENGINE_PAGES = {"vllm": vllm_page, "sglang": sglang_page}


def show(run: Run) -> Bundle:
    """``run`` as a bundle, with its label. Equal runs give equal bundles."""
    plan = run.plan
    metrics = {
        stem: tuple(one for page in pages for one in scraped(page, plan))
        for stem, pages in _pages(run).items()
    }
    files: dict[str, bytes] = {}
    if plan.shown.engine_log:
        files |= engine_logs(run)
        if plan.shown.node:
            files |= kernel_logs(run)
    if plan.shown.events and plan.marks:
        files["events.jsonl"] = _events(plan)
    return Bundle(_meta(plan), metrics, records_of(run), files)


def _pages(run: Run) -> dict[str, list[Page]]:
    """The targets by the metrics file that they go to."""
    shown = run.plan.shown
    pages: dict[str, list[Page]] = defaultdict(list)
    for replica, engine in zip(run.plan.replicas, run.engines, strict=True):
        pages["engine"].append(_ENGINE_PAGES[shown.engine](run, engine, replica))
    if run.plan.fabric is not None:
        pages["engine"].append(store_page(run))
    if shown.gpu:
        pages["gpu"] = [_GPU_PAGES[shown.gpu](run, host, found) for host, found in _readings(run)]
    if shown.node:
        for node in run.nodes:
            pages["node"] += [node_page(run, node), containers_page(run, node), backend_page(run, node)]
    if shown.gateway_log and run.gateway_in_flight.size == run.times.size:
        pages["gateway"] = [gateway_page(run)]
    return pages


def _readings(run: Run) -> Iterator[tuple[str, list[Reading]]]:
    for host in run.plan.hosts:
        cards = [card for card in run.cards if card.host == host.name]
        if cards:
            yield host.name, [reading_of(run, card) for card in cards]


def _events(plan: Plan) -> bytes:
    lines = [
        {
            "time": round(plan.start + mark.time, 3),
            "kind": mark.kind,
            "target": mark.target,
            "text": mark.text,
        }
        for mark in sorted(plan.marks, key=lambda mark: mark.time)
    ]
    return msgspec.json.Encoder().encode_lines(lines)


def _meta(plan: Plan) -> dict[str, Any]:
    truth = plan.truth
    label: dict[str, Any] = {
        "causes": list(truth.causes),
        "leading": truth.leading,
        "accept": list(truth.accept) or ([truth.leading] if truth.leading else []),
        "must_not": list(truth.must_not),
        "scope": {name: list(members) for name, members in truth.scope},
        "onset": None if truth.onset is None else round(plan.start + truth.onset, 3),
        "kind": "simulated",
        "severity": round(truth.severity, 4),
    }
    return {
        "schema": _SCHEMA,
        "name": plan.name,
        "window": {"from": plan.start, "to": plan.start + plan.seconds},
        "step_seconds": plan.step_seconds,
        "incident": None,
        "label": label,
        "notes": f"SIMULATED: {plan.notes}".rstrip(),
    }
