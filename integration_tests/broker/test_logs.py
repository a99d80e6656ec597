"""The broker's own log as JSON lines, and requests told in it while somebody asks for that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.conftest import BrokerMaker
from integration_tests.differential.peer import Peer
from integration_tests.differential.requests import DELETE, SET, configs_request
from integration_tests.differential.scenarios.broker_loggers import LOGGER, levels
from isthmus.core_broker.loggers import REQUESTS
from isthmus.protocol.messages import describe_cluster, list_groups


def lines(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.log.splitlines()]


@pytest.mark.parametrize("form", ["json", "text"])
def test_requests_are_told_while_their_logger_is_at_debug(make_broker: BrokerMaker, form: str) -> None:
    broker = make_broker({"log.format": form})
    peer = Peer("isthmus", broker.address)
    peer.ask(list_groups.Request())
    assert peer.ask(levels("1", (REQUESTS, SET, "DEBUG"))).responses[0].error_code == 0
    peer.ask(describe_cluster.Request())
    [level] = peer.ask(configs_request("1", [REQUESTS], LOGGER)).results[0].configs
    assert level.value == "DEBUG"
    assert peer.ask(levels("1", (REQUESTS, DELETE, None))).responses[0].error_code == 0
    peer.ask(list_groups.Request())
    peer.close()
    assert broker.stop() == 0
    if form == "text":
        [said] = [line for line in broker.log.splitlines() if "DescribeCluster v2 from 127.0.0.1, client " in line]
        assert " DEBUG " in said and said.endswith(" ms")
        return
    told = [line for line in lines(broker) if line["logger"] == REQUESTS]
    assert [line["api"] for line in told] == ["DescribeCluster", "DescribeConfigs"]
    assert told[0] | {"time": "", "elapsed_ms": 0, "message": ""} == {
        "time": "", "level": "DEBUG", "logger": REQUESTS, "message": "", "api": "DescribeCluster", "version": 2,
        "correlation_id": told[0]["correlation_id"], "client_id": told[0]["client_id"], "client_host": "127.0.0.1",
        "elapsed_ms": 0,
    }  # fmt: skip
    assert 0 < told[0]["elapsed_ms"] < 10_000
