"""What holds for requests of any API: order, headers, and what is not served. Asked by way of Metadata (3)."""

from __future__ import annotations

from isthmus.protocol.messages import metadata
from isthmus.protocol.primitives import write_uvarint

from ..peer import Case, Scenarios
from ..requests import WAIT_MS, fetch_request, fill, metadata_request

SCENARIOS = Scenarios()
TAGGED = b"\2" + b"".join(write_uvarint(tag) + b"\3abc" for tag in (100, 20_000))  # two fields of three bytes
NO_TOPICS = b"\1\0\0"  # of version 11 on: an empty list, no topics to be made, no operations to be told


@SCENARIOS.success(3, since=11)
def tagged_fields_that_nobody_knows(case: Case) -> None:
    case.compare_raw(metadata.API, NO_TOPICS + TAGGED)
    case.compare_raw(metadata.API, NO_TOPICS + b"\0", header_tags=TAGGED)


@SCENARIOS.error(3, since=11)
def tagged_fields_that_do_not_fit(case: Case) -> None:
    for tags in (b"\1\x64\x7fabc", b"\xff\xff\xff\xff\x0f", b"\1", b""):
        case.compare_raw(metadata.API, NO_TOPICS + tags)


@SCENARIOS.success(3, ends=True)
def requests_that_do_not_wait_for_each_other(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    waits = fetch_request(case, 3, topic_id, min_bytes=1, max_wait_ms=20 * WAIT_MS)
    case.compare_pipelined(waits, metadata_request(case.name), fetch_request(case, 0, topic_id))


@SCENARIOS.error(3)
def keys_and_versions_that_are_not_served(case: Case) -> None:
    for key, version in ((3, 99), (3, -1), (4, 0), (999, 0), (-1, 0), (7, 3), (0, 99)):
        case.expect_closed_by(key, version)
