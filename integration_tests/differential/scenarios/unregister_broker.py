"""UnregisterBroker (64)."""

from __future__ import annotations

from isthmus.protocol.messages import unregister_broker as m

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


@SCENARIOS.error(64)
def brokers_that_are_not_there(case: Case) -> None:
    for broker_id in (4711, -1):
        case.compare(m.Request(broker_id=broker_id))
