"""A crash after which nothing comes again."""

from __future__ import annotations

from isthmus.client import TopicPartition
from isthmus.streams import TestDriver


def truncate(driver: TestDriver, tp: TopicPartition, end: int) -> None:
    """Drop the records of a partition from an offset on."""
    del driver.topics._topics[tp.topic][tp.partition].records[end:]


def crash_and_forget(driver: TestDriver) -> None:
    """As if what was sent since the last commit had never been sent."""
    driver.topics.abort()
    for tp in driver.positions:
        truncate(driver, tp, driver.topics.committed.get((driver.app.id, tp), 0))
    driver.crash()
    driver.sent.clear()
