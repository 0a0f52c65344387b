"""GPUs, engines and sessions for Prometheus: what decides most incidents and nobody exports.

    collectors (gpu, engine, sessions)  ──rows──>  Sampler  ──Snapshot──>  page  ──>  /metrics

A collector reads the world when the sampler's thread says so, never when somebody scrapes.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
