"""A transactional producer under comparison: it brings its transaction into a state, and has the requests that ask.

By the new protocol (KIP-890) partitions are added by what is sent to them, and each end gives the next epoch; by the
old one they are added by requests of their own, and the epoch stays. What is asked here is preparation, and not kept;
requests that scenarios compare are made by the functions and methods that end in `_request`.
"""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
    txn_offset_commit,
    write_txn_markers,
)

from .batches import TRANSACTIONAL, batch
from .peer import Case
from .requests import new_producer

TIMEOUT_MS = 60_000
EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
DONE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
STATES = (EMPTY, ONGOING, *PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT)
TRANSACTION_KEY = 1  # kind of coordinator
NEVER_MS = str(2**63 - 1)  # markers are of now: by time they would begin a segment, and fetches of Kafka's end there
UNKNOWN_ID = 1 << 40  # a producer id that no cluster has come to
LATER = 1_000  # epoch of a coordinator that no broker has come to
NOT_YET = (14, 15, 16)  # a coordinator loads, or is not there
CONCURRENT_TRANSACTIONS, TRANSACTIONAL_ID_NOT_FOUND = 51, 105
# The last versions of the old protocol.
OLD_ADD, OLD_PRODUCE, OLD_OFFSETS, OLD_COMMIT, OLD_END = 3, 11, 4, 4, 4
FOR_BROKERS = 4  # AddPartitionsToTxn from here on


class Producer:
    """One producer; `producer_id` and `epoch` are those that it was given last. Its topic is the case's."""

    def __init__(self, case: Case, suffix: str = "", *, old: bool = False, timeout_ms: int = TIMEOUT_MS) -> None:
        self.case = case
        self.id = case.name + suffix
        self.old = old
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.topic_ids: dict[str, bytes] = {}
        self._sent: dict[tuple[str, int], int] = {}  # records of this epoch, by topic and partition
        transaction_coordinator(case, self.id)
        new_producer(case)  # the broker has ids to give from then on

    # --- Preparation --------------------------------------------------------------------------------------------------

    def begin(self) -> Producer:
        """An id and an epoch, the next one if it has some; whatever is under way is ended by that."""
        answers: list[Any] = []

        def given() -> bool:
            answers.append(self.case.prepare(self.init_request()))
            return answers[-1].error_code != CONCURRENT_TRANSACTIONS

        self.case.wait_until(given, f"an epoch for {self.id}")
        assert answers[-1].error_code == 0, answers[-1]
        self.given(answers[-1])
        return self

    def given(self, answer: Any) -> None:
        """Go on with the id and epoch of an answer, if it has some."""
        if getattr(answer, "producer_id", -1) < 0:
            return
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self._sent.clear()
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        names = self.case.peer.producer_ids
        if self.producer_id not in names:
            names[self.producer_id] = self.id if self.id not in names.values() else f"{self.id} later"

    def write(self, partition: int = 0, count: int = 1, *, topic: str = "", **fields: Any) -> None:
        """Append a batch of this transaction, adding the partition to it."""
        topic = topic or self.case.name
        if self.old:
            self.add(partition, topic=topic)
        sequence = self._sent.get((topic, partition), 0)
        sent = self.batch(sequence, count, **fields)
        version = OLD_PRODUCE if self.old else None
        answer = self.case.prepare(self.produce_request(sent, partition, topic=topic), version)
        [row] = answer.responses[0].partition_responses
        assert row.error_code == 0, answer
        self._sent[topic, partition] = sequence + count

    def add(self, *partitions: int, topic: str = "") -> None:
        """Add partitions by a request of its own."""

        def added() -> bool:
            answer = self.case.prepare(self.add_request(*partitions, topic=topic), OLD_ADD)
            codes = {row.partition_error_code for row in answer.results_by_topic_v3_and_below[0].results_by_partition}
            assert codes in ({0}, {CONCURRENT_TRANSACTIONS}), answer
            return codes == {0}

        self.case.wait_until(added, f"partitions of {self.id}")

    def commit_offset(self, offset: int, group: str = "", partition: int = 0, **fields: Any) -> None:
        """Commit an offset of the case's group, or of another one, in this transaction."""
        group = group or self.case.name
        self.case.coordinator(group)
        self.case.group_logs[group] = None
        if self.old:
            answer = self.case.prepare(self.add_offsets_request(group))
            assert answer.error_code == 0, answer
        request = self.offsets_request(offset, group, partition, **fields)
        answer = self.case.prepare(request, OLD_COMMIT if self.old else None)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    def end(self, committed: bool = True) -> None:
        """End the transaction and wait until all markers are written."""
        answer = self.case.prepare(self.end_request(committed), OLD_END if self.old else None)
        assert answer.error_code == 0, answer
        self.given(answer)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is under way any more."""
        self.case.wait_until(lambda: self.state() not in PREPARED, f"the end of {self.id}")

    def state(self) -> str:
        return str(self.case.prepare(describe_request(self.id)).transaction_states[0].transaction_state)

    def bring(self, state: str) -> Producer:
        """A transaction in a state, after one record in partition 0 of the case's topic where it is not empty.

        A transaction rests in its PrepareCommit or PrepareAbort once its coordinator was fenced at a partition.
        """
        if self.case.name not in self.case.topics:
            self.case.topic(partitions=2, segment_ms=NEVER_MS)
        self.begin()
        if state == EMPTY:
            return self
        self.write()
        if state in PREPARED:
            written = self.case.prepare(self.marker_request(coordinator_epoch=LATER))
            assert written.markers[0].topics[0].partitions[0].error_code == 0, written
            answer = self.case.prepare(self.end_request(state == PREPARE_COMMIT), OLD_END if self.old else None)
            assert answer.error_code == 0, answer
            self.given(answer)
        elif state != ONGOING:
            self.end(state == COMPLETE_COMMIT)
        assert self.state() == state
        return self

    # --- Requests -----------------------------------------------------------------------------------------------------

    def init_request(self, **fields: Any) -> init_producer_id.Request:
        settings = {"transactional_id": self.id, "transaction_timeout_ms": self.timeout_ms}
        return init_producer_id.Request(**{**settings, **fields})

    def bump_request(self, epoch_off: int = 0, **fields: Any) -> init_producer_id.Request:
        """For the next epoch of an id and epoch that it tells."""
        settings = {"producer_id": self.producer_id, "producer_epoch": self.epoch + epoch_off}
        return self.init_request(**{**settings, **fields})

    def batch(self, sequence: int = 0, count: int = 1, **fields: Any) -> bytes:
        settings = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "attributes": TRANSACTIONAL,
        }
        return batch(count, **{**settings, **fields})

    def produce_request(self, records: bytes, partition: int = 0, *, topic: str = "", **fields: Any) -> produce.Request:
        topic = topic or self.case.name
        data = produce.PartitionProduceData(index=partition, records=records)
        wanted = produce.TopicProduceData(name=topic, topic_id=self.topic_id(topic), partition_data=[data])
        settings = {"transactional_id": self.id, "acks": -1, "timeout_ms": 5_000, "topic_data": [wanted]}
        return produce.Request(**{**settings, **fields})

    def topic_id(self, topic: str) -> bytes:
        if topic not in self.topic_ids:
            self.topic_ids[topic] = self.case.id_of(topic)
        return self.topic_ids[topic]

    def add_request(
        self, *partitions: int, topic: str = "", topics: dict[str, list[int]] | None = None, **fields: Any
    ) -> add_partitions_to_txn.Request:
        """In the layout of clients. fields: transactional_id, producer_id, producer_epoch."""
        who = {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch, **fields}
        named = {f"v3_and_below_{name}": value for name, value in who.items()}
        rows = added_topics({topic or self.case.name: list(partitions)} if topics is None else topics)
        return add_partitions_to_txn.Request(**named, v3_and_below_topics=rows)

    def added_row(
        self, *partitions: int, topics: dict[str, list[int]] | None = None, **fields: Any
    ) -> add_partitions_to_txn.AddPartitionsToTxnTransaction:
        """One transaction in the layout of brokers."""
        settings = {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": added_topics({self.case.name: list(partitions)} if topics is None else topics),
        }
        return add_partitions_to_txn.AddPartitionsToTxnTransaction(**{**settings, **fields})

    def any_add_request(self, *partitions: int, verify_only: bool = False, **fields: Any) -> Any:
        """In the layout of the version under test."""
        if self.case.version < FOR_BROKERS:
            return self.add_request(*partitions, **fields)
        return brokers_request(self.added_row(*partitions, verify_only=verify_only, **fields))

    def add_offsets_request(self, group: str = "", **fields: Any) -> add_offsets_to_txn.Request:
        settings = {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "group_id": group or self.case.name,
        }
        return add_offsets_to_txn.Request(**{**settings, **fields})

    def end_request(self, committed: bool = True, **fields: Any) -> end_txn.Request:
        settings = {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": committed,
        }
        return end_txn.Request(**{**settings, **fields})

    def offsets_request(
        self, offset: int = 42, group: str = "", partition: int = 0, *, metadata: str | None = "note", **fields: Any
    ) -> txn_offset_commit.Request:
        row = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata=metadata
        )
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
            name=self.case.name, topic_id=self.topic_id(self.case.name), partitions=[row]
        )
        settings: dict[str, Any] = {
            "transactional_id": self.id,
            "group_id": group or self.case.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": [topic],
        }
        return txn_offset_commit.Request(**{**settings, **fields})

    def marker(
        self, committed: bool = True, topics: dict[str, list[int]] | None = None, **fields: Any
    ) -> write_txn_markers.WritableTxnMarker:
        rows = [
            write_txn_markers.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in ({self.case.name: [0]} if topics is None else topics).items()
        ]
        settings: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "transaction_result": committed,
            "coordinator_epoch": 0,
            "topics": rows,
        }
        return write_txn_markers.WritableTxnMarker(**{**settings, **fields})

    def marker_request(
        self, committed: bool = True, topics: dict[str, list[int]] | None = None, **fields: Any
    ) -> write_txn_markers.Request:
        return write_txn_markers.Request(markers=[self.marker(committed, topics, **fields)])


def strangers(producer: Producer) -> list[dict[str, Any]]:
    """Fields of requests that say that another producer asks."""
    return [
        {"producer_id": UNKNOWN_ID},
        {"producer_id": -1},
        {"producer_epoch": producer.epoch - 2},
        {"producer_epoch": producer.epoch - 1},
        {"producer_epoch": producer.epoch + 1},
        {"producer_epoch": -1},
        {"producer_id": UNKNOWN_ID, "producer_epoch": 7},
    ]


def added_topics(topics: dict[str, list[int]]) -> list[add_partitions_to_txn.AddPartitionsToTxnTopic]:
    return [
        add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=indexes)
        for name, indexes in topics.items()
    ]  # fmt: skip


def brokers_request(*rows: add_partitions_to_txn.AddPartitionsToTxnTransaction) -> add_partitions_to_txn.Request:
    return add_partitions_to_txn.Request(transactions=list(rows))


def describe_request(*transactional_ids: str) -> describe_transactions.Request:
    return describe_transactions.Request(transactional_ids=list(transactional_ids))


def transaction_coordinator(case: Case, transactional_id: str) -> None:
    """Wait until the broker coordinates the id and has loaded its partition; its records are read back afterwards."""
    case.transactions[transactional_id] = None
    find = find_coordinator.Request(key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id])

    def found() -> bool:
        [coordinator] = case.prepare(find).coordinators
        [described] = case.prepare(describe_request(transactional_id)).transaction_states
        return coordinator.error_code == 0 and described.error_code not in NOT_YET

    case.wait_until(found, f"a coordinator for {transactional_id}")


def one_order(answer: Any) -> Any:
    """Topics and partitions of transactions by name and number: Kafka's order is that of a hash table."""
    if isinstance(answer, dict):
        return {key: one_order(value) for key, value in answer.items()}
    if not isinstance(answer, list):
        return answer
    rows = [one_order(each) for each in answer]
    if all(isinstance(each, int) for each in rows):
        return sorted(rows)
    for name in ("partition_index", "topic", "name", "transactional_id"):
        if rows and isinstance(rows[0], dict) and name in rows[0]:
            return sorted(rows, key=lambda row: str(row[name]).zfill(10))
    return rows
