"""Requests are counted by API and version, whatever listener they came by."""

from __future__ import annotations

from types import SimpleNamespace

from isthmus.core_broker.metrics import read
from isthmus.core_broker.server.dispatch import Routes, Scope


def test_the_same_api_of_clients_and_of_controllers_is_one_sample() -> None:
    latencies: dict = {}
    clients, controllers = [Routes(scope, latencies)[18 << 16 | 4] for scope in Scope]
    clients.requests, controllers.requests = 3, 4
    found = list(read.requests(SimpleNamespace(routes=[clients, controllers])))
    assert [(each.labels, each.value) for each in found] == [(("ApiVersions", "4"), 7)]
    assert clients.latency is controllers.latency
