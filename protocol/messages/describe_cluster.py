"""DescribeCluster (key 60): cluster id, controller and brokers.

Flexible from the start. v1: endpoint type (1 brokers, 2 controllers). v2: fenced brokers."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int8, int16, int32, string


class Request(Struct):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-0x80000000)


API = Api(60, "DescribeCluster", Request, Response, versions="0-2", flexible="0+")
