"""kafka-python's own integration tests come to the same on our broker as on stock Kafka, test by test."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.brokers import running_broker
from integration_tests.peers.peers import cluster

from .kafka_python import FAILED, NODE_ID, OPTIONS, PASSED, SKIPPED, Side, Suite, differing, outcomes, table

# kafka-python's consumers race with their own first metadata, see docs/reference/clients.md.
AGAIN = 3  # times that tests which differ are run again, alone: some do not come to the same each time on Kafka either
# What is not here yet, and so does not come to the same; a name that comes to the same must go from this list.
TRANSACTIONS = [
    f"test/integration/test_producer_integration.py::test_transactional_producer_{what}"
    for what in ("messages", "offsets")
]
LEAST_PASSED = 45  # by the tests that run on one node without TLS, SASL and an authorizer


@pytest.mark.soak
def test_each_test_comes_to_the_same_as_on_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = Suite(tmp_path / "suite")
    with cluster(properties=OPTIONS, heap="512m", first_id=NODE_ID) as kafka:
        with running_broker(tmp_path / "broker", {**OPTIONS, "node.id": NODE_ID}) as broker:
            ours: Side = {}
            theirs: Side = {}
            only: list[str] = []
            for _ in range(1 + AGAIN):
                for address, side in ((broker.bootstrap, ours), (kafka.bootstrap, theirs)):
                    for name, outcome in suite.run(address, only).items():
                        side.setdefault(name, set()).add(outcome)
                only = differing(ours, theirs)
                if only == TRANSACTIONS:
                    break
    with capsys.disabled():
        print("\n" + table(ours, theirs))
    assert only == TRANSACTIONS, f"{only} do not come to the same"
    assert sum(PASSED in each for each in theirs.values()) >= LEAST_PASSED, "the tests did not do much"


def test_what_a_report_says(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite name="pytest">'
        '<testcase classname="test.integration.test_a" name="test_x[1]"/>'
        '<testcase classname="test.integration.test_a" name="test_y"><failure>no</failure></testcase>'
        '<testcase classname="test.integration.test_a" name="test_z"><skipped/></testcase>'
        '<testcase classname="test.integration.test_a" name="test_x[1]"><error>in its tear-down</error></testcase>'
        "</testsuite></testsuites>"
    )
    assert outcomes(report) == {
        "test/integration/test_a.py::test_x[1]": FAILED,
        "test/integration/test_a.py::test_y": FAILED,
        "test/integration/test_a.py::test_z": SKIPPED,
    }


def test_control_a_test_that_differs_is_named() -> None:
    ours = {"a": {PASSED}, "b": {FAILED}, "c": {PASSED, FAILED}}
    theirs = {"a": {PASSED}, "b": {PASSED}, "c": {FAILED}, "d": {PASSED}}
    assert differing(ours, theirs) == ["b", "d"]
    marked = [line for line in table(ours, theirs).splitlines() if line.endswith("DIFFERS")]
    assert [line.split()[0] for line in marked] == ["b", "d"]
