"""Nodes that are cut off from the others, though not from clients: they know when others may have taken their place."""

from __future__ import annotations

import asyncio

import pytest

from tests.running import run_by

from .three_nodes import IDS, ThreeNodes, on_three_nodes

LOOK_S = 0.05


async def cut_off(nodes: ThreeNodes, node_id: int) -> list[int]:
    """Once all know that all live. Gives the other nodes."""
    images = [nodes.services(each).image for each in IDS]
    await nodes.sim.until(lambda: all(image.is_active(each) for image in images for each in IDS), "all nodes to live")
    others = [each for each in IDS if each != node_id]
    nodes.sim.network.partition([f"n{node_id}"], [f"n{each}" for each in others])
    return others


@pytest.mark.parametrize("who", ["the controller", "another"])
@run_by(on_three_nodes)
async def test_no_session_is_left_when_others_fence_a_node(nodes: ThreeNodes, /, who: str) -> None:
    """A controller that is cut off answers its own heartbeats. It must not make its own session last."""
    node_id = nodes.leader if who == "the controller" else nodes.others[0]
    services = nodes.services(node_id)
    others = await cut_off(nodes, node_id)
    assert services.has_session()
    while not any(nodes.services(each).image.brokers[node_id].fenced for each in others):
        await asyncio.sleep(LOOK_S)
    for _ in range(200):
        assert not services.has_session()
        await asyncio.sleep(LOOK_S)
    nodes.sim.network.heal()
    await nodes.sim.until(services.has_session, "a session")
