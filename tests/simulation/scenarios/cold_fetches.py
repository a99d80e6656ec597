"""`fetch-sessions` on a disk of which the page cache holds but a part: positions and bytes are brought by the pool."""

from __future__ import annotations

from ..runner import Simulation
from .fetch_sessions import fetch_sessions


async def cold_fetches(sim: Simulation) -> None:
    await fetch_sessions(sim, cold_share=sim.random.uniform(0.1, 0.9))
