"""ListConfigResources (74): which topics and brokers have options."""

from __future__ import annotations

from isthmus.protocol.messages import list_config_resources as m

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def ours(case: Case):
    """Of the topics the one of the case; a node's name is its own."""

    def only(answer: dict) -> dict:
        rows = []
        for row in answer["config_resources"]:
            kind = row.get("resource_type")
            if kind in (BROKER, BROKER_LOGGER) and row["resource_name"] == str(case.peer.node_id):
                rows.append({**row, "resource_name": "<its node id>"})
            elif kind != TOPIC or row["resource_name"] == case.name:
                rows.append(row)
        return {**answer, "config_resources": rows}

    return only


@SCENARIOS.success(74)
def what_has_options(case: Case) -> None:
    case.topic()
    case.compare(m.Request(), only=ours(case))
    if case.version >= 1:
        for kinds in ([TOPIC], [BROKER], [BROKER_LOGGER, TOPIC], [CLIENT_METRICS], [GROUP]):
            case.compare(m.Request(resource_types=kinds), only=ours(case))


@SCENARIOS.error(74, since=1)
def a_kind_that_is_not_known(case: Case) -> None:
    case.compare(m.Request(resource_types=[TOPIC, 7]))
