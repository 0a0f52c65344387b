"""What ships beside the code: rules built from the engine files, runbooks' generated parts, dashboards.

``python -m diag.assets.generate`` writes what is generated and committed, ``--check`` proves it fresh.
``inventory`` lists what ships, ``export`` copies it, ``checking`` tells what a store would see of it.
"""

from __future__ import annotations

__all__: list[str] = []
