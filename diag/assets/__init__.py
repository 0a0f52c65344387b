"""Builds what is generated and committed: the shipped incidents and the README's example run.

``python -m diag.assets.generate`` writes them, ``--check`` proves them fresh. Rules and dashboards
join here with the issue that asks for them.
"""

from __future__ import annotations

__all__: list[str] = []
