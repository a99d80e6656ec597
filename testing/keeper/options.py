"""Broker options that a topology leaves to its test."""

from __future__ import annotations

from ...deploy.nodes import BETWEEN_BY
from ...deploy.topology import Topology
from ..errors import IsthmusTestingError

SET_HERE = ("advertised.listeners", "listener.security.protocol.map", "listeners", "log.dirs")
SET_FOR_SEVERAL = (*SET_HERE, BETWEEN_BY)


def check(topology: Topology) -> None:
    """Raises IsthmusTestingError."""
    for name, datacenter in topology.datacenters.items():
        for option in SET_HERE if datacenter.brokers == 1 else SET_FOR_SEVERAL:
            if option in datacenter.options:
                raise IsthmusTestingError(
                    f"datacenters.{name}.options.{option}: tests set this themselves: leave it out of the topology"
                )
