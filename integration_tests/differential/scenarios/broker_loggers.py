"""Levels of a broker's own log: DescribeConfigs (32) and IncrementalAlterConfigs (44) on a resource of the kind 8.

Loggers have names of their own on each side; what both have is the root.
"""

from __future__ import annotations

from isthmus.protocol.messages import alter_configs as old
from isthmus.protocol.messages import incremental_alter_configs as m

from ..peer import Case, Scenarios
from ..requests import APPEND, DELETE, SET, SUBTRACT, Row, configs_request

SCENARIOS = Scenarios()
LOGGER = 8  # kind of resource
ROOT = "root"


def levels(name: str, *rows: Row, validate_only: bool = False) -> m.Request:
    configs = [m.AlterableConfig(name=logger, config_operation=how, value=level) for logger, how, level in rows]
    resource = m.AlterConfigsResource(resource_type=LOGGER, resource_name=name, configs=configs)
    return m.Request(resources=[resource], validate_only=validate_only)


@SCENARIOS.success(44, ends=True)
def sets_the_level_of_the_root(case: Case) -> None:
    broker = str(case.peer.node_id)
    for level in ("WARN", "INFO"):
        case.compare(levels(broker, (ROOT, SET, level)))
        case.see(configs_request(broker, [ROOT], LOGGER))
    case.compare(levels(broker, (ROOT, SET, "ERROR"), validate_only=True))
    case.see(configs_request(broker, [ROOT], LOGGER))
    case.compare(levels(broker))


@SCENARIOS.error(44, ends=True)
def levels_and_loggers_that_are_none(case: Case) -> None:
    broker = str(case.peer.node_id)
    for row in (
        ("no.such.logger", SET, "INFO"),
        ("no.such.logger", SET, "LOUD"),
        ("no.such.logger", DELETE, None),
        ("", SET, "INFO"),
        (ROOT, SET, "info"),
        (ROOT, SET, ""),
        (ROOT, SET, None),
        (ROOT, DELETE, None),
        (ROOT, APPEND, "INFO"),
        (ROOT, SUBTRACT, "INFO"),
        (ROOT, 7, "INFO"),
    ):
        case.compare(levels(broker, row))
    case.compare(levels(broker, (ROOT, SET, "FATAL"), ("no.such.logger", SET, "INFO")))
    case.compare(levels(broker, (ROOT, SET, "FATAL"), (ROOT, SET, "WARN")))
    case.see(configs_request(broker, [ROOT], LOGGER))


@SCENARIOS.error(44, ends=True)
def levels_of_other_brokers(case: Case) -> None:
    for name in ("4711", "", "one"):
        case.compare(levels(name, (ROOT, SET, "INFO")))


@SCENARIOS.error(33, ends=True)
def levels_by_the_old_request(case: Case) -> None:
    configs = [old.AlterableConfig(name=ROOT, value="INFO")]
    resource = old.AlterConfigsResource(
        resource_type=LOGGER, resource_name=str(case.peer.node_id), configs=configs
    )  # fmt: skip
    case.compare(old.Request(resources=[resource]))


@SCENARIOS.error(32, ends=True)
def describes_levels(case: Case) -> None:
    for name in (str(case.peer.node_id), "4711", "", "one"):
        case.compare(configs_request(name, [ROOT, "no.such.logger"], LOGGER, include_synonyms=True))
