"""ApiVersions (key 18): which keys and versions a broker serves.

The answer's header is never flexible, and an unknown version is answered in the layout of v0 (KIP-511). v3: flexible,
client software, features. v4: features may start at 0. v5: the cluster and node that the client means to talk to."""

from __future__ import annotations

from ..schema import Api, Codec, Struct, array, boolean, int16, int32, int64, string


class Request(Struct):
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class Response(Struct):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion, is_kept=True)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", tag=0, ignorable=True, is_kept=True
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)


API = Api(18, "ApiVersions", Request, Response, versions="0-5", flexible="3+")
# For brokers that keep them encoded:
API_KEY = Codec(ApiVersion, "ApiVersion", "0-5", "3+")
SUPPORTED_FEATURE = Codec(SupportedFeatureKey, "SupportedFeatureKey", "3-5", "3+")
