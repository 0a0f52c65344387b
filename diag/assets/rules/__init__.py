"""The rules: recordings generated from ``diag.engines``, alerts as data, and their writers.

``catalogue`` has everything by name; ``thresholds`` the numbers with their reasons; ``links`` where
an alert leads; ``yaml_text``, ``kubernetes`` and ``alertmanager`` write the committed files.
"""

from __future__ import annotations

__all__: list[str] = []
