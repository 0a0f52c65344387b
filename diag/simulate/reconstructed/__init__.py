"""Public incidents as small bundles around the numbers that were posted.

``CASES`` by id; each says where it comes from, what was posted, what was filled in, and what the right answer
is. Nothing here uses the serving simulator: if that is wrong about how services fail, these are not.
"""

from __future__ import annotations

from diag.simulate.reconstructed.admission import ADMISSION
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.clients import CLIENTS
from diag.simulate.reconstructed.engine_config import ENGINE_CONFIG
from diag.simulate.reconstructed.fairness import FAIRNESS
from diag.simulate.reconstructed.gpu_health import GPU_HEALTH
from diag.simulate.reconstructed.host_side import HOST_SIDE
from diag.simulate.reconstructed.kv_capacity import KV_CAPACITY
from diag.simulate.reconstructed.prefix_cache import PREFIX_CACHE
from diag.simulate.reconstructed.telemetry_traps import TELEMETRY_TRAPS
from diag.simulate.reconstructed.transfers import TRANSFERS

__all__ = ["CASES", "Label", "Reconstructed"]

_ALL = (
    *KV_CAPACITY,
    *ADMISSION,
    *PREFIX_CACHE,
    *FAIRNESS,
    *HOST_SIDE,
    *GPU_HEALTH,
    *TRANSFERS,
    *ENGINE_CONFIG,
    *CLIENTS,
    *TELEMETRY_TRAPS,
)

CASES: dict[str, Reconstructed] = {case.id: case for case in _ALL}
"""By id, family by family."""
