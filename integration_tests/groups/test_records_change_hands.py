"""The records of groups are Kafka's: stock Kafka goes on with the groups that we kept, and we with Kafka's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import running_broker
from integration_tests.differential.crew import COMPLETING, EMPTY, FOLLOWER, LEADER, PREPARING, STABLE, Crew
from integration_tests.differential.peer import Case, Peer
from integration_tests.differential.scenarios import delete_groups, offset_commit, offset_delete
from integration_tests.differential.transactional import Producer
from integration_tests.differential.wire import plain
from integration_tests.peers.peers import cluster
from integration_tests.storage.dump import dump
from isthmus.protocol.messages import describe_groups, heartbeat, metadata, offset_fetch

OPTIONS = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
LASTING_MS = 600_000  # members and transactions are to be there still when the other broker has read of them
GROUPS = ("offsets", "deleted", "ünïcode", EMPTY, PREPARING, COMPLETING, STABLE)
IN_TRANSACTIONS = ("committed", "aborted", "open", "overtaken", "removed", "dropped", "left")
UNSTABLE = 88
OFFSETS_TOPIC = "__consumer_offsets-0"


class LastingCrew(Crew):
    def join_request(self, name: str, **fields: Any) -> Any:
        return super().join_request(name, session_timeout_ms=LASTING_MS, **fields)


def fill(peer: Peer) -> dict[str, str]:
    """A group of each kind on a broker; the member ids of the stable one by name."""
    case = Case(peer, 9, "topic")
    topic_id = case.topic(partitions=5)
    for group in ("offsets", "deleted", "ünïcode"):
        case.coordinator(group)
        rows = [offset_commit.row(index, 100 + index, f"note {index} ü") for index in range(5)]
        case.prepare(offset_commit.request(case, topic_id, *rows, group_id=group))
        case.prepare(offset_commit.request(case, topic_id, offset_commit.row(0, 7, None, -1), group_id=group))
    lasting = offset_commit.request(
        case, topic_id, offset_commit.row(3, 8), group_id="offsets", retention_time_ms=10**9
    )
    case.prepare(lasting, 2)
    case.prepare(offset_delete.request("offsets", ("topic", [2])))
    case.prepare(delete_groups.request("deleted"))
    ids = {}
    for state in (EMPTY, PREPARING, COMPLETING, STABLE):
        with LastingCrew(case, state).bring(state) as crew:
            if state == STABLE:
                case.prepare(crew.commit_request(FOLLOWER, topic_id, 42))
                ids = {name: member.member_id for name, member in crew.members.items()}
    return ids


def fill_by_transactions(peer: Peer) -> None:
    """Groups whose offsets were committed in transactions, by the old protocol and by the new one."""
    case = Case(peer, 9, "topic")
    topic_id = case.id_of("topic")
    for old in (True, False):
        first = 0 if old else 2  # of two partitions
        name = "old" if old else "new"
        producer = Producer(case, f"-{name}", old=old, timeout_ms=LASTING_MS).begin()
        for committed, group in ((True, "committed"), (False, "aborted")):
            case.coordinator(group)
            case.prepare(offset_commit.request(case, topic_id, offset_commit.row(first, 5), group_id=group))
            producer.commit_offset(50, group, first, metadata="in a transaction ü")
            producer.commit_offset(51, group, first + 1)
            producer.end(committed)
        for group in ("overtaken", "removed", "dropped"):
            producer.commit_offset(60, group, first)
            producer.commit_offset(61, group, first + 1)
        case.prepare(offset_commit.request(case, topic_id, offset_commit.row(first, 62), group_id="overtaken"))
        case.prepare(offset_delete.request("removed", ("topic", [first])))
        case.prepare(delete_groups.request("dropped"))
        producer.end()
        leave_a_topic(Case(peer, 9, f"topic-{name}"), old)
        case.coordinator("open")
        case.prepare(offset_commit.request(case, topic_id, offset_commit.row(first, 7), group_id="open"))
        left = Producer(case, f"-open-{name}", old=old, timeout_ms=LASTING_MS).begin()
        left.commit_offset(70, "open", first)


def leave_a_topic(case: Case, old: bool) -> None:
    """Delete a topic of which a transaction has an offset."""
    case.topic()
    producer = Producer(case, old=old, timeout_ms=LASTING_MS).begin()
    producer.commit_offset(80, "left")
    wanted = [offset_fetch.OffsetFetchRequestTopics(name=case.name, partition_indexes=[0])]
    asked = offset_fetch.OffsetFetchRequestGroup(group_id="left", topics=wanted)

    def code() -> int:
        answer = case.prepare(offset_fetch.Request(groups=[asked], require_stable=True), 9)
        return int(answer.groups[0].topics[0].partitions[0].error_code)

    assert code() == UNSTABLE
    case.delete_topic()
    case.wait_until(lambda: code() == 0, f"the offset of {case.name} is gone")
    producer.end()


def told_of_transactions(peer: Peer) -> dict[str, Any]:
    """The groups' offsets, and what those who ask for stable ones are told: code, offset and metadata."""
    found: dict[str, Any] = {}
    wanted = [
        offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
        for name, indexes in (("topic", [0, 1, 2, 3]), ("topic-old", [0]), ("topic-new", [0]))
    ]
    for group in IN_TRANSACTIONS:
        Case(peer, 9, group).coordinator()
        for is_stable in (False, True):
            asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=wanted)
            [answer] = peer.ask(offset_fetch.Request(groups=[asked], require_stable=is_stable), 9).groups
            found[f"{group}, {'stable' if is_stable else 'any'}"] = [
                (row.error_code, row.committed_offset, row.metadata)
                for topic in answer.topics
                for row in topic.partitions
            ]
    return found


def told(peer: Peer) -> dict[str, Any]:
    """What a broker says of all groups, their members' ids left as they are."""
    found: dict[str, Any] = {}
    for group in GROUPS:
        Case(peer, 9, group).coordinator()
        [described] = peer.ask(describe_groups.Request(groups=[group])).groups
        members = sorted(described.members, key=lambda member: member.member_id)
        described.members = members
        offsets = peer.ask(
            offset_fetch.Request(groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)]), 9
        )
        rows = sorted(
            (topic.name, row.partition_index, row.committed_offset, row.committed_leader_epoch, row.metadata)
            for topic in offsets.groups[0].topics
            for row in topic.partitions
        )
        found[group] = plain(described, describe_groups.API.max_version), rows
    return found


def told_by_id(peer: Peer) -> list[tuple[int, int]]:
    """Partitions and offsets of the topic, asked for by the id that it has on this broker."""
    topic_id = peer.ask(metadata.Request(topics=[metadata.MetadataRequestTopic(name="topic")])).topics[0].topic_id
    topic = offset_fetch.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 3])
    group = offset_fetch.OffsetFetchRequestGroup(group_id="offsets", topics=[topic])
    [found] = peer.ask(offset_fetch.Request(groups=[group]), 10).groups[0].topics
    return [(row.partition_index, row.committed_offset) for row in found.partitions]


def expected(before: dict[str, Any]) -> dict[str, Any]:
    """What is left of it when another coordinator reads the records: what was not stable was not stored yet."""
    found = dict(before)
    for state in (PREPARING, COMPLETING):
        found.pop(state)
    return found


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """What each broker said before and after both were stopped and their partitions of groups exchanged."""
    folder = tmp_path_factory.mktemp("swap")
    said: dict[Any, Any] = {}
    with cluster(properties=OPTIONS, heap="512m", folder=folder / "kafka") as kafka:
        with running_broker(folder / "ours", OPTIONS) as broker:
            peers = {"ours": Peer("isthmus", broker.bootstrap), "kafka": Peer("stock Kafka", kafka.bootstrap)}
            for name, peer in peers.items():
                said[name, "ids"] = fill(peer)
                fill_by_transactions(peer)
                said[name, "transactions before"] = told_of_transactions(peer)
                said[name, "before"] = told(peer)
                said[name, "before by id"] = told_by_id(peer)
                peer.close()
            broker.stop()
            kafka.stop()
            ours, theirs = folder / "ours" / "data", folder / "kafka" / "node-1" / "data"
            for name, data in (("ours", ours), ("kafka", theirs)):
                logs = sorted((data / OFFSETS_TOPIC).glob("*.log"))
                said[name, "dump"] = dump(logs, "--offsets-decoder", "--deep-iteration")
            exchange(ours, theirs)
            kafka.start("512m")
            broker.start()
            peers = {"ours": Peer("isthmus", broker.bootstrap), "kafka": Peer("stock Kafka", kafka.bootstrap)}
            for name, peer in peers.items():
                said[name, "after"] = told(peer)
                said[name, "after by id"] = told_by_id(peer)
                said[name, "transactions after"] = told_of_transactions(peer)
                other = "kafka" if name == "ours" else "ours"
                said[name, "beat"] = [
                    peer.ask(heartbeat.Request(group_id=STABLE, generation_id=2, member_id=said[other, "ids"][who]))
                    for who in (LEADER, FOLLOWER)
                ]
                peer.close()
            said["log"] = (kafka.nodes[0].folder / "server.log").read_text()
    return said


def exchange(one: Path, other: Path) -> None:
    """Swap the segments of the groups' partition; all that is derived from them goes, and is made anew."""
    for data in (one, other):
        for path in (data / OFFSETS_TOPIC).iterdir():
            if path.suffix != ".log" and path.name != "partition.metadata":
                path.unlink()
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (data / name).unlink(missing_ok=True)
    held = one.parent / "held"
    shutil.move(one / OFFSETS_TOPIC, held)
    kept = (held / "partition.metadata").read_bytes()
    shutil.copytree(other / OFFSETS_TOPIC, one / OFFSETS_TOPIC)
    for path in (other / OFFSETS_TOPIC).glob("*.log"):
        path.unlink()
    for path in held.glob("*.log"):
        shutil.copy(path, other / OFFSETS_TOPIC)
    (one / OFFSETS_TOPIC / "partition.metadata").write_bytes(kept)


def test_kafka_goes_on_with_our_groups(swapped: dict[Any, Any]) -> None:
    before, after = expected(swapped["ours", "before"]), expected(swapped["kafka", "after"])
    assert after == before
    assert [answer.error_code for answer in swapped["kafka", "beat"]] == [0, 0]


def test_we_go_on_with_kafkas_groups(swapped: dict[Any, Any]) -> None:
    before, after = expected(swapped["kafka", "before"]), expected(swapped["ours", "after"])
    assert after == before
    assert [answer.error_code for answer in swapped["ours", "beat"]] == [0, 0]


@pytest.mark.parametrize(("writer", "reader"), [("ours", "kafka"), ("kafka", "ours")])
def test_offsets_of_transactions_count_as_they_ended(swapped: dict[Any, Any], writer: str, reader: str) -> None:
    before, after = swapped[writer, "transactions before"], swapped[reader, "transactions after"]
    assert after == before
    rows = {group: found[:4] for group, found in after.items()}
    none, unstable = (0, -1, ""), (UNSTABLE, -1, "")
    assert rows["committed, stable"] == [(0, 50, "in a transaction ü"), (0, 51, "note")] * 2
    assert rows["aborted, stable"] == [(0, 5, "note"), none] * 2
    assert rows["overtaken, stable"] == [(0, 62, "note"), (0, 61, "note")] * 2
    assert rows["removed, stable"] == [none, (0, 61, "note")] * 2
    assert rows["open, any"] == [(0, 7, "note"), none] * 2
    assert rows["open, stable"] == [unstable, none] * 2
    assert after["dropped, stable"] == after["left, stable"] == [none] * 6


def test_both_make_the_same_of_a_group_that_was_between_two_generations(swapped: dict[Any, Any]) -> None:
    def shape(name: str, state: str) -> Any:
        described, rows = swapped[name, "after"][state]
        members = sorted(member["member_metadata"] for member in described["members"])
        return described["group_state"], described["protocol_data"], members, rows

    for state in (PREPARING, COMPLETING):
        assert shape("ours", state) == shape("kafka", state)


def test_who_asks_by_id_is_not_told_of_another_topic_of_that_name(swapped: dict[Any, Any]) -> None:
    for name in ("ours", "kafka"):
        assert swapped[name, "before by id"] == [(0, 7), (3, 8)]
        assert swapped[name, "after by id"] == [(0, -1), (3, 8)], "the record that lives for a while holds no id"


def test_kafkas_dump_tool_reads_our_group_records(swapped: dict[Any, Any]) -> None:
    text = swapped["ours", "dump"]
    assert "isvalid: false" not in text
    for words in ('"group":"offsets"', '"type":"1"', '"type":"2"', '"protocol":"range"', '"metadata":"note 4 ü"'):
        assert words in text, words


def test_kafka_writes_the_same_records(swapped: dict[Any, Any]) -> None:
    """Record by record what Kafka wrote for the same requests, ids and times aside."""
    ours, kafka = (sorted(masked(swapped[name, "dump"])) for name in ("ours", "kafka"))
    assert len(ours) > 30 and sum(each.endswith("<DELETE>") for each in ours) == 17
    assert ours == kafka


def test_kafka_writes_the_same_batches_and_markers(swapped: dict[Any, Any]) -> None:
    ours, kafka = (transactional(swapped[name, "dump"]) for name in ("ours", "kafka"))
    assert ours == kafka and len(ours) == 24 + 8 + 8 and sum("endTxnMarker" in each for each in ours) == 8


def transactional(text: str) -> list[str]:
    """Batches and markers of transactions in a dump, without what is where and when."""
    lines = [line for line in text.splitlines() if "isTransactional: true" in line or "endTxnMarker" in line]
    return sorted(re.sub(r"(\w*[oO]ffset|position|\w*[tT]ime\w*|crc|producerId): \d+", r"\1", each) for each in lines)


def masked(text: str) -> list[str]:
    """Keys and values of a dump without what is made at random or tells the time; members in one order."""
    records = re.findall(r"^\| offset: .* (key: .*)$", text, re.MULTILINE)
    for pattern, instead in (
        (r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "-<uuid>"),
        (r'("\w*[tT]imestamp":)\d+', r"\1<time>"),
        (r'"topicId":"[\w-]{22}"', '"topicId":"<id>"'),
    ):
        records = [re.sub(pattern, instead, record) for record in records]
    return [re.sub(r'"members":\[(.*)\]', _sorted_members, record) for record in records]


def _sorted_members(found: re.Match[str]) -> str:
    return '"members":[' + ",".join(sorted(re.findall(r"\{[^}]*\}", found[1]))) + "]"


def test_control_something_was_there(swapped: dict[Any, Any]) -> None:
    for name in ("ours", "kafka"):
        found = swapped[name, "before"]
        assert [found[group][0]["group_state"] for group in GROUPS] == [
            "Empty", "Dead", "Empty", EMPTY, PREPARING, COMPLETING, STABLE
        ]  # fmt: skip
        assert len(found["offsets"][1]) == 4 and found["deleted"][1] == [] and len(found[STABLE][0]["members"]) == 3
