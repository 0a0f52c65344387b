"""Draws what the boards show of real and simulated incidents, from answers of a real Prometheus.

``stages`` are the incidents, ``store`` runs the server, ``asking`` puts a board's variables and window into
its queries, ``drawing`` paints a board on its own grid, ``gallery`` writes docs/dashboards.md. ``make
pictures`` does it all. This shows data and layout; it is not Grafana.
"""

from __future__ import annotations

__all__: list[str] = []
