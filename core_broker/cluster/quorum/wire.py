"""The quorum's requests and answers as Kafka's messages, and back: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and
FetchSnapshot of `__cluster_metadata-0`, AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter.

A message has the leader's address only for the listener that it is sent to, so an answer's endpoints get that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....client.connection import introduction
from ....protocol.errors import ErrorCode
from ....protocol.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from ....protocol.schema import Api
from ..features import KRAFT_VERSION
from ..raft import messages as m
from ..raft.messages import NO_NODE, UNKNOWN, OffsetAndEpoch
from ..raft.voters import KRAFT_VERSIONS, Endpoint, Endpoints, ReplicaKey, Voter, endpoints_of, listed
from ..topic_names import CLUSTER_METADATA

TOPIC_ID = bytes(15) + b"\x01"  # of the metadata's topic, always
PRE_VOTE_VERSION = 2
FEATURES_VERSION = 3

Wire = Any  # a request or response of protocol.messages


class Invalid(Exception):
    """A request that is for another partition or another cluster, or makes no sense.

    error: the code at the top of the answer; message: for answers that have room for one.
    """

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


class QuorumWire:
    """listener: the name of the listener that members of the quorum reach each other by."""

    def __init__(self, cluster_id: str | None, listener: str, fetch_max_bytes: int, snapshot_max_bytes: int) -> None:
        self.cluster_id = cluster_id
        self.listener = listener
        self.fetch_max_bytes = fetch_max_bytes
        self.snapshot_max_bytes = snapshot_max_bytes

    # --- Requests that are sent ---------------------------------------------------------------------------------------

    def sent(self, request: m.Request) -> tuple[Api, Wire]:
        match request:
            case m.Vote():
                return vote.API, self._vote(request)
            case m.BeginQuorumEpoch():
                return begin_quorum_epoch.API, self._begin(request)
            case m.EndQuorumEpoch():
                return end_quorum_epoch.API, self._end(request)
            case m.Fetch():
                return fetch.API, self._fetch(request)
            case m.FetchSnapshot():
                return fetch_snapshot.API, self._fetch_snapshot(request)
            case m.ProbeVoter():
                return api_versions.API, introduction()
            case m.AddVoter():
                return add_raft_voter.API, self._add(request)
            case m.RemoveVoter():
                key = request.voter
                return remove_raft_voter.API, remove_raft_voter.Request(
                    cluster_id=self.cluster_id, voter_id=key.id, voter_directory_id=key.directory_id
                )
            case m.UpdateVoter():
                return update_raft_voter.API, self._update(request)
        raise TypeError(f"{type(request).__name__} is not sent by the quorum")

    def _vote(self, request: m.Vote) -> vote.Request:
        partition = vote.PartitionData(
            replica_epoch=request.epoch,
            replica_id=request.candidate.id,
            replica_directory_id=request.candidate.directory_id,
            voter_directory_id=request.voter.directory_id,
            last_offset_epoch=request.last.epoch,
            last_offset=request.last.offset,
            pre_vote=request.pre_vote,
        )
        topic = vote.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
        return vote.Request(cluster_id=self.cluster_id, voter_id=request.voter.id, topics=[topic])

    def _begin(self, request: m.BeginQuorumEpoch) -> begin_quorum_epoch.Request:
        partition = begin_quorum_epoch.PartitionData(
            voter_directory_id=request.voter.directory_id, leader_id=request.leader_id, leader_epoch=request.epoch
        )
        return begin_quorum_epoch.Request(
            cluster_id=self.cluster_id,
            voter_id=request.voter.id,
            topics=[begin_quorum_epoch.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
            leader_endpoints=listed(request.endpoints, begin_quorum_epoch.LeaderEndpoint),
        )

    def _end(self, request: m.EndQuorumEpoch) -> end_quorum_epoch.Request:
        partition = end_quorum_epoch.PartitionData(
            leader_id=request.leader_id,
            leader_epoch=request.epoch,
            preferred_successors=[key.id for key in request.successors],
            preferred_candidates=[
                end_quorum_epoch.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                for key in request.successors
            ],
        )
        return end_quorum_epoch.Request(
            cluster_id=self.cluster_id,
            topics=[end_quorum_epoch.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
            leader_endpoints=listed(request.endpoints, end_quorum_epoch.LeaderEndpoint),
        )

    def _fetch(self, request: m.Fetch) -> fetch.Request:
        partition = fetch.FetchPartition(
            current_leader_epoch=request.epoch,
            fetch_offset=request.offset,
            last_fetched_epoch=request.last_fetched_epoch,
            partition_max_bytes=self.fetch_max_bytes,
            replica_directory_id=request.replica.directory_id,
            high_watermark=request.high_watermark,
        )
        topic = fetch.FetchTopic(topic=CLUSTER_METADATA, topic_id=TOPIC_ID, partitions=[partition])
        return fetch.Request(
            cluster_id=self.cluster_id,
            replica_state=fetch.ReplicaState(replica_id=request.replica.id),
            max_wait_ms=request.max_wait_ms,
            max_bytes=self.fetch_max_bytes,
            topics=[topic],
        )

    def _fetch_snapshot(self, request: m.FetchSnapshot) -> fetch_snapshot.Request:
        offset, epoch = request.snapshot
        partition = fetch_snapshot.PartitionSnapshotRequest(
            current_leader_epoch=request.epoch,
            snapshot_id=fetch_snapshot.SnapshotId(end_offset=offset, epoch=epoch),
            position=request.position,
            replica_directory_id=request.replica.directory_id,
        )
        return fetch_snapshot.Request(
            cluster_id=self.cluster_id,
            replica_id=request.replica.id,
            max_bytes=self.snapshot_max_bytes,
            topics=[fetch_snapshot.TopicSnapshotRequest(name=CLUSTER_METADATA, partitions=[partition])],
        )

    def _add(self, request: m.AddVoter) -> add_raft_voter.Request:
        return add_raft_voter.Request(
            cluster_id=self.cluster_id,
            timeout_ms=request.timeout_ms,
            voter_id=request.voter.key.id,
            voter_directory_id=request.voter.key.directory_id,
            listeners=listed(request.voter.endpoints, add_raft_voter.Listener),
            ack_when_committed=request.ack_when_committed,
        )

    def _update(self, request: m.UpdateVoter) -> update_raft_voter.Request:
        low, high = request.voter.kraft_versions
        return update_raft_voter.Request(
            cluster_id=self.cluster_id,
            current_leader_epoch=request.epoch,
            voter_id=request.voter.key.id,
            voter_directory_id=request.voter.key.directory_id,
            listeners=listed(request.voter.endpoints, update_raft_voter.Listener),
            kraft_version_feature=update_raft_voter.KRaftVersionFeature(
                min_supported_version=low, max_supported_version=high
            ),
        )

    # --- Answers that come --------------------------------------------------------------------------------------------

    def answer(self, request: m.Request, answer: Wire) -> m.Response:
        """The answer to a request that was sent."""
        match request:
            case m.Vote():
                part = _partition(answer)
                if part is None:
                    return m.VoteAnswer(ErrorCode(answer.error_code), UNKNOWN)
                endpoints = self._endpoints(answer, part.leader_id)
                error = ErrorCode(part.error_code)
                return m.VoteAnswer(error, part.leader_epoch, part.leader_id, endpoints, part.vote_granted)
            case m.BeginQuorumEpoch() | m.EndQuorumEpoch():
                kind = m.BeginQuorumEpochAnswer if isinstance(request, m.BeginQuorumEpoch) else m.EndQuorumEpochAnswer
                part = _partition(answer)
                if part is None:
                    return kind(ErrorCode(answer.error_code), UNKNOWN)
                endpoints = self._endpoints(answer, part.leader_id)
                return kind(ErrorCode(part.error_code), part.leader_epoch, part.leader_id, endpoints)
            case m.Fetch():
                return self._fetch_answer(answer)
            case m.FetchSnapshot():
                return self._snapshot_answer(answer)
            case m.ProbeVoter():
                levels = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
                return m.ProbeAnswer(ErrorCode(answer.error_code), UNKNOWN, kraft_versions=levels.get(KRAFT_VERSION))
            case m.AddVoter() | m.RemoveVoter():
                return m.VoterAnswer(ErrorCode(answer.error_code), UNKNOWN, message=answer.error_message)
            case m.UpdateVoter():
                leader = answer.current_leader or update_raft_voter.CurrentLeader()
                return m.VoterAnswer(ErrorCode(answer.error_code), leader.leader_epoch, leader.leader_id)
        raise TypeError(f"{type(request).__name__} is not sent by the quorum")

    def _fetch_answer(self, answer: fetch.Response) -> m.FetchAnswer:
        if answer.error_code or not answer.responses or not answer.responses[0].partitions:
            return m.FetchAnswer(ErrorCode(answer.error_code), UNKNOWN)
        part = answer.responses[0].partitions[0]
        leader = part.current_leader or fetch.LeaderIdAndEpoch()
        diverging, snapshot = part.diverging_epoch, part.snapshot_id
        return m.FetchAnswer(
            ErrorCode(part.error_code),
            leader.leader_epoch,
            leader.leader_id,
            self._endpoints(answer, leader.leader_id),
            part.high_watermark,
            part.log_start_offset,
            None if diverging is None or diverging.epoch < 0 else OffsetAndEpoch(diverging.end_offset, diverging.epoch),
            None if snapshot is None or snapshot.epoch < 0 else OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
            records=bytes(part.records or b""),
        )

    def _snapshot_answer(self, answer: fetch_snapshot.Response) -> m.FetchSnapshotAnswer:
        part = _partition(answer)
        if part is None:
            return m.FetchSnapshotAnswer(ErrorCode(answer.error_code), UNKNOWN)
        leader = part.current_leader or fetch_snapshot.LeaderIdAndEpoch(leader_id=NO_NODE, leader_epoch=UNKNOWN)
        return m.FetchSnapshotAnswer(
            ErrorCode(part.error_code),
            leader.leader_epoch,
            leader.leader_id,
            self._endpoints(answer, leader.leader_id),
            OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch),
            part.size,
            part.position,
            bytes(part.unaligned_records or b""),
        )

    def _endpoints(self, answer: Wire, leader_id: int) -> Endpoints:
        return tuple(
            Endpoint(self.listener, each.host, each.port)
            for each in answer.node_endpoints
            if each.node_id == leader_id and leader_id >= 0
        )

    # --- Requests that come -------------------------------------------------------------------------------------------

    def received(self, request: Wire) -> m.Request:
        """Raises Invalid."""
        if request.cluster_id is not None and self.cluster_id is not None and request.cluster_id != self.cluster_id:
            reason = f"this is cluster {self.cluster_id}, not {request.cluster_id}"
            raise Invalid(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
        match request:
            case add_raft_voter.Request():
                return m.AddVoter(self._voter(request), max(request.timeout_ms, 0), request.ack_when_committed)
            case remove_raft_voter.Request():
                return m.RemoveVoter(ReplicaKey(request.voter_id, request.voter_directory_id))
            case update_raft_voter.Request():
                return m.UpdateVoter(self._voter(request), request.current_leader_epoch)
        part = _asked(request)
        match request:
            case vote.Request():
                return m.Vote(
                    ReplicaKey(part.replica_id, part.replica_directory_id),
                    ReplicaKey(request.voter_id, part.voter_directory_id),
                    part.replica_epoch,
                    OffsetAndEpoch(part.last_offset, part.last_offset_epoch),
                    part.pre_vote,
                )
            case begin_quorum_epoch.Request():
                voter = ReplicaKey(request.voter_id, part.voter_directory_id)
                return m.BeginQuorumEpoch(
                    part.leader_id, voter, part.leader_epoch, endpoints_of(request.leader_endpoints)
                )
            case end_quorum_epoch.Request():
                successors = [
                    ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in part.preferred_candidates
                ] or [ReplicaKey(node_id) for node_id in part.preferred_successors]
                return m.EndQuorumEpoch(
                    part.leader_id, part.leader_epoch, successors, endpoints_of(request.leader_endpoints)
                )
            case fetch.Request():
                state = request.replica_state
                return m.Fetch(
                    ReplicaKey(request.replica_id if state is None else state.replica_id, part.replica_directory_id),
                    part.current_leader_epoch,
                    part.fetch_offset,
                    part.last_fetched_epoch,
                    request.max_wait_ms,
                    part.high_watermark,
                )
            case fetch_snapshot.Request():
                return m.FetchSnapshot(
                    ReplicaKey(request.replica_id, part.replica_directory_id),
                    part.current_leader_epoch,
                    OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch),
                    part.position,
                )
        raise TypeError(f"{type(request).__name__} is not the quorum's")

    def _voter(self, request: Wire) -> Voter:
        """Raises Invalid."""
        endpoints = endpoints_of(request.listeners)
        if request.voter_id < 0 or not any(each.listener.upper() == self.listener for each in endpoints):
            reason = (
                f"voter {request.voter_id} has no endpoint for {self.listener}, by which controllers are reached here"
            )
            raise Invalid(ErrorCode.INVALID_REQUEST, reason)
        levels = KRAFT_VERSIONS
        if isinstance(request, update_raft_voter.Request):
            feature = request.kraft_version_feature
            levels = feature.min_supported_version, feature.max_supported_version
            if not 0 <= levels[0] <= levels[1]:
                raise Invalid(ErrorCode.INVALID_REQUEST)
        return Voter(ReplicaKey(request.voter_id, request.voter_directory_id), endpoints, levels)

    # --- Answers that are sent ----------------------------------------------------------------------------------------

    def refused(self, request: Wire, error: ErrorCode, message: str = "") -> Wire:
        """An answer with this error at its top."""
        made = _RESPONSES[type(request)](error_code=error)
        if isinstance(made, (add_raft_voter.Response, remove_raft_voter.Response)):
            made.error_message = message or None
        return made

    def reply(self, request: Wire, answer: m.Response) -> Wire:
        match answer:
            case m.VoterAnswer():
                made = self.refused(request, answer.error, answer.message or "")
                if isinstance(made, update_raft_voter.Response):
                    made.current_leader = self._current_leader(answer)
                return made
            case m.VoteAnswer():
                result = vote.PartitionResult(
                    error_code=answer.error,
                    leader_id=answer.leader_id,
                    leader_epoch=answer.epoch,
                    vote_granted=answer.granted,
                )
                topic = vote.TopicResult(topic_name=CLUSTER_METADATA, partitions=[result])
                return vote.Response(topics=[topic], node_endpoints=self._nodes(answer, vote.NodeEndpoint))
            case m.BeginQuorumEpochAnswer():
                return self._epoch_reply(answer, begin_quorum_epoch)
            case m.EndQuorumEpochAnswer():
                return self._epoch_reply(answer, end_quorum_epoch)
            case m.FetchAnswer():
                return self._fetch_reply(answer)
            case m.FetchSnapshotAnswer():
                return self._snapshot_reply(answer)
        raise TypeError(f"{type(answer).__name__} is not sent by the quorum")

    def _epoch_reply(self, answer: m.Response, messages: Any) -> Wire:
        result = messages.PartitionResult(
            error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
        )
        topic = messages.TopicResult(topic_name=CLUSTER_METADATA, partitions=[result])
        return messages.Response(topics=[topic], node_endpoints=self._nodes(answer, messages.NodeEndpoint))

    def _fetch_reply(self, answer: m.FetchAnswer) -> fetch.Response:
        partition = fetch.PartitionData(
            error_code=answer.error,
            high_watermark=answer.high_watermark,
            log_start_offset=answer.log_start,
            current_leader=fetch.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
            records=answer.records,
        )
        if answer.diverging is not None:
            offset, epoch = answer.diverging
            partition.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=offset)
        if answer.snapshot is not None:
            offset, epoch = answer.snapshot
            partition.snapshot_id = fetch.SnapshotId(end_offset=offset, epoch=epoch)
        topic = fetch.FetchableTopicResponse(topic=CLUSTER_METADATA, topic_id=TOPIC_ID, partitions=[partition])
        return fetch.Response(responses=[topic], node_endpoints=self._nodes(answer, fetch.NodeEndpoint))

    def _snapshot_reply(self, answer: m.FetchSnapshotAnswer) -> fetch_snapshot.Response:
        leader = fetch_snapshot.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch)
        offset, epoch = answer.snapshot or (0, 0)
        partition = fetch_snapshot.PartitionSnapshot(
            error_code=answer.error,
            snapshot_id=fetch_snapshot.SnapshotId(end_offset=offset, epoch=epoch),
            current_leader=leader,
            size=answer.size,
            position=answer.position,
            unaligned_records=answer.data,
        )
        topic = fetch_snapshot.TopicSnapshot(name=CLUSTER_METADATA, partitions=[partition])
        return fetch_snapshot.Response(topics=[topic], node_endpoints=self._nodes(answer, fetch_snapshot.NodeEndpoint))

    def _current_leader(self, answer: m.Response) -> update_raft_voter.CurrentLeader:
        [node] = self._nodes(answer, dict) or [{"host": "", "port": 0}]
        return update_raft_voter.CurrentLeader(
            leader_id=answer.leader_id, leader_epoch=answer.epoch, host=node["host"], port=node["port"]
        )

    def _nodes(self, answer: m.Response, make: Callable[..., Any]) -> list[Any]:
        """The leader's address, as far as it is known."""
        known = [each for each in answer.endpoints if each.listener == self.listener] or list(answer.endpoints)
        if answer.leader_id < 0 or not known:
            return []
        return [make(node_id=answer.leader_id, host=known[0].host, port=known[0].port)]


def least_version(request: m.Request) -> int:
    """Of its API: an older one cannot say what this request says."""
    match request:
        case m.Vote(pre_vote=True):
            return PRE_VOTE_VERSION
        case m.ProbeVoter():
            return FEATURES_VERSION
    return 0


_RESPONSES: dict[type, Callable[..., Wire]] = {
    vote.Request: vote.Response,
    begin_quorum_epoch.Request: begin_quorum_epoch.Response,
    end_quorum_epoch.Request: end_quorum_epoch.Response,
    fetch.Request: fetch.Response,
    fetch_snapshot.Request: fetch_snapshot.Response,
    add_raft_voter.Request: add_raft_voter.Response,
    remove_raft_voter.Request: remove_raft_voter.Response,
    update_raft_voter.Request: update_raft_voter.Response,
}


def _partition(answer: Wire) -> Any:
    """The one partition of an answer; None if the whole request failed."""
    if answer.error_code or not answer.topics or not answer.topics[0].partitions:
        return None
    return answer.topics[0].partitions[0]


def _asked(request: Wire) -> Any:
    """The one partition that there is, if it alone is asked for. Raises Invalid."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise Invalid(ErrorCode.INVALID_REQUEST)
    topic, partition = request.topics[0], request.topics[0].partitions[0]
    match request:
        case fetch.Request():  # by name, or by id
            is_right = (topic.topic == CLUSTER_METADATA or topic.topic_id == TOPIC_ID) and partition.partition == 0
        case fetch_snapshot.Request():
            is_right = topic.name == CLUSTER_METADATA and partition.partition == 0
        case _:
            is_right = topic.topic_name == CLUSTER_METADATA and partition.partition_index == 0
    if not is_right:
        raise Invalid(ErrorCode.INVALID_REQUEST)
    return partition
