"""What a node is in the metadata quorum, as its options say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..protocol.primitives import uuid_from_str
from .cluster.quorum.member import Member, alone
from .cluster.raft.raft import RaftOptions
from .cluster.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from .config import BrokerConfig
from .membership import first_voters, is_alone, servers, voters
from .server.listener import Listener


def member_of(config: BrokerConfig, listeners: Sequence[Listener], cluster_id: str, directory_id: str) -> Member:
    """listeners: those of controllers, bound. The ids are those of meta.properties."""
    node_id: int = config["node.id"]
    if is_alone(config) and not listeners:
        return replace(alone(node_id), cluster_id=cluster_id)  # no other node could reach it
    listener = config["controller.listener.names"][0].upper()
    own = tuple(Endpoint(each.name, each.advertised.host, each.advertised.port) for each in listeners)

    def option(name: str) -> int:
        value: int = config[f"controller.quorum.{name}"]
        return value

    return Member(
        ReplicaKey(node_id, uuid_from_str(directory_id)),
        _configured_voters(config, listener, own),
        own,
        [Endpoint(listener, each.host, each.port) for each in servers(config)],
        RaftOptions(
            election_timeout_ms=option("election.timeout.ms"),
            fetch_timeout_ms=option("fetch.timeout.ms"),
            election_backoff_max_ms=option("election.backoff.max.ms"),
            request_timeout_ms=option("request.timeout.ms"),
            retry_backoff_ms=option("retry.backoff.ms"),
        ),
        cluster_id,
        listener,
        option("fetch.max.bytes"),
        option("fetch.snapshot.max.bytes"),
        grows=is_alone(config),
        joins=config["controller.quorum.auto.join.enable"] and "controller" in config["process.roles"],
    )


def _configured_voters(config: BrokerConfig, listener: str, own: tuple[Endpoint, ...]) -> VoterSet:
    """Those of controller.quorum.voters. A node that is told of no other is the first voter, until the log has more of
    them (KIP-853)."""
    if is_alone(config):
        return VoterSet.of([Voter(ReplicaKey(config["node.id"]), own)])
    return VoterSet.of(
        Voter(ReplicaKey(each.node_id or 0), (Endpoint(listener, each.host, each.port),)) for each in voters(config)
    )


def first_voters_of(config: BrokerConfig) -> VoterSet:
    """Those that a new cluster begins with, so that its voters can be changed (KIP-853); empty if none are named."""
    names = config["controller.listener.names"] or [""]
    return VoterSet.of(
        Voter(
            ReplicaKey(each.node_id, uuid_from_str(each.directory_id)),
            (Endpoint(names[0].upper(), each.host, each.port),),
        )
        for each in first_voters(config)
    )
