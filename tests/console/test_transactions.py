"""What a transaction's description says to a person and to a program."""

import pytest

from isthmus.client import TopicPartition
from isthmus.client.open_transactions import TransactionDescription
from isthmus.console import transactions

PARTITIONS = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
ONGOING = TransactionDescription("x", 2, 7, 3, "Ongoing", 60_000, 1_000, PARTITIONS)


def test_one_that_is_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    facts = transactions.facts_of(ONGOING, 3_500)
    assert facts["duration_ms"] == 2_500 and facts["partitions"] == {"a": [0, 2], "b": [1]}
    transactions.show(facts)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["x", "Ongoing", "coordinator", "2"]
    assert lines[1] == ["producer", "7,", "epoch", "3"]
    assert lines[2] == ["timeout", "60", "s,", "under", "way", "for", "2.5", "s"]
    assert lines[3:] == [["topic", "partitions"], ["a", "0,2"], ["b", "1"]]


def test_one_that_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    over = TransactionDescription("x", 2, 7, 3, "CompleteCommit", 60_000, 1_000, ())
    facts = transactions.facts_of(over, 3_500)
    assert facts["duration_ms"] is None
    transactions.show(facts)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()][2:] == ["timeout 60 s", "no partitions"]
