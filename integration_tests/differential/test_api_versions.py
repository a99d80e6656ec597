"""The two brokers' ApiVersions answers: our keys have exactly stock Kafka's ranges, and one key is our own."""

from __future__ import annotations

import pytest

from isthmus.protocol.messages import api_versions

from .peer import Peer
from .versions import OUR_OWN, STOCK
from .wire import api, decode


def ranges(peer: Peer) -> dict[int, tuple[int, int]]:
    answer = peer.ask(api_versions.Request(client_software_name="differential", client_software_version="1"))
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def test_the_table_is_what_stock_kafka_answers(stock: Peer) -> None:
    served = ranges(stock)
    assert {key: served.get(key) for key in STOCK} == STOCK


def test_we_serve_the_keys_of_the_table_in_its_ranges_and_our_own(ours: Peer) -> None:
    assert ranges(ours) == {**STOCK, **OUR_OWN}


def test_stock_kafka_has_no_key_of_ours(stock: Peer) -> None:
    assert not ranges(stock).keys() & OUR_OWN.keys()


def test_the_features_that_we_have_are_at_stock_kafkas_levels(ours: Peer, stock: Peer) -> None:
    """The voters of the stock peer are configured, those of ours are in the log: so has Kafka's `--standalone` it."""
    request = api_versions.Request(client_software_name="differential", client_software_version="1")
    answers = [peer.ask(request) for peer in (ours, stock)]
    own, theirs = [
        {each.name: (each.min_version, each.max_version) for each in answer.supported_features} for answer in answers
    ]
    assert own and own.items() <= theirs.items()
    own, theirs = [
        {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        for answer in answers
    ]
    assert own.pop("kraft.version", (1, 1)) == (1, 1)
    assert own and own.items() <= theirs.items()


@pytest.mark.parametrize("key", STOCK)
def test_our_codec_has_the_same_range(key: int) -> None:
    assert (api(key).min_version, api(key).max_version) == STOCK[key]


@pytest.mark.parametrize("version", [6, 99])
def test_a_version_to_come_is_answered_in_the_first_layout(version: int, ours: Peer, stock: Peer) -> None:
    """KIP-511: with an error, and the range of ApiVersions itself, so that the client can ask again."""
    answers = [
        decode(api(18), 0, peer.connection.ask_raw(18, version, b"\2a\2b\0", flexible=True)) for peer in (ours, stock)
    ]
    assert answers[0] == answers[1]
    assert answers[0].error_code == 35
    assert [(each.api_key, each.min_version, each.max_version) for each in answers[0].api_keys] == [(18, *STOCK[18])]
