"""The boards, one a module, in the order in which an operator opens them."""

from __future__ import annotations

from dashboards.src.boards.cache import CACHE
from dashboards.src.boards.engine import ENGINES
from dashboards.src.boards.fabric import FABRIC
from dashboards.src.boards.gpu import GPUS
from dashboards.src.boards.incident import INCIDENT
from dashboards.src.boards.sessions import SESSIONS
from dashboards.src.boards.tenants import TENANTS
from dashboards.src.model import Board

__all__ = ["BOARDS"]

BOARDS: tuple[Board, ...] = (INCIDENT, SESSIONS, ENGINES, CACHE, GPUS, FABRIC, TENANTS)
"""Every board."""
