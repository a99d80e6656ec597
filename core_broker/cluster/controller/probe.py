"""Whether the process of a broker is gone, as its machine says: it refuses connections to the port of the broker.

A machine refuses at once where no process listens. A cut network, a machine without power and a process that hangs
are silent, and silence proves nothing.
"""

from __future__ import annotations

import asyncio

from ..image import BrokerInfo

TRIES = 3  # a process that is being killed may listen for a moment still
PAUSE_S = 0.03
TIMEOUT_S = 0.3


async def is_gone(listener: str, broker: BrokerInfo) -> bool:
    """listener: the name of the listeners by which brokers reach each other. A name with several addresses proves
    nothing. Takes TRIES * (TIMEOUT_S + PAUSE_S) at most; never raises.
    """
    endpoint = broker.endpoints.get(listener)
    if endpoint is None:
        return False
    for _ in range(TRIES):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    asyncio.Protocol, endpoint.host, endpoint.port
                )
        except ConnectionRefusedError:
            return True
        except OSError:  # TimeoutError is one
            return False
        transport.close()
        await asyncio.sleep(PAUSE_S)
    return False
