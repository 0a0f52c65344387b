"""Builders of the dashboards: plain data here, Grafana's JSON in ``dashboards/*.json``.

``python -m dashboards.src`` writes them (``make generate`` does so too), ``--check`` names the stale.
A board is a module; ``grafana`` alone knows the vendor's builder library; ``pictures`` draws what a
board shows of an incident.
"""

from __future__ import annotations

__all__: list[str] = []
